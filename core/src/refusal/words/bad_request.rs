//! The messages for requests that are contradictory or cannot be parsed.

use std::fmt::{self, Display, Formatter};

use super::super::*;
use super::no_number;

impl Display for BadRequest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable(fault) => write!(f, "{fault}"),
            Self::Unmarshal(fault) => write!(f, "{fault}"),
            Self::Unrecognized { wanted, why } => {
                write!(f, "the object provided is unrecognized (must be of type {wanted}): {why}")
            }
            Self::Unfit { kind, version, wanted, why } => {
                write!(f, "{kind} in version \"{version}\" cannot be handled as a {wanted}: {why}")
            }
            Self::OtherVersion { found, expected } => {
                write!(f, "the API version in the data ({found}) does not match the expected API version ({expected})")
            }
            Self::Unconvertible { kind, from, to, fault } => {
                write!(f, "{kind} in version \"{from}\" cannot be converted to \"{to}\": {fault}")
            }
            Self::TooDeep { subject, depth_max } => write!(f, "{subject} is nested deeper than {depth_max} levels"),
            Self::VersionOnCreate => f.write_str("resourceVersion should not be set on objects to be created"),
            Self::OtherNamespace => {
                f.write_str("the namespace of the provided object does not match the namespace sent on the request")
            }
            Self::NoName { path } => {
                write!(f, "the name of the object ({path} based on URL) was undeterminable: name must be provided")
            }
            Self::OtherName { body, path } => {
                write!(f, "the name of the object ({body}) does not match the name on the URL ({path})")
            }
            Self::Patch(fault) => write!(f, "error decoding patch: {fault}"),
            Self::Directive(what) => write!(f, "invalid patch format of {what}"),
            Self::NotAnObjectToMerge => f.write_str("invalid JSON document"),
            Self::Apply(fault) => write!(f, "{fault}"),
            Self::UnselectableField { field, kind: Some(kind), .. } => {
                write!(f, "field label {} not supported for {kind}", quoted(field))
            }
            Self::UnselectableField { field, only_metadata: true, .. } => {
                write!(f, "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            Self::UnselectableField { field, only_metadata: false, .. } => {
                write!(f, "field label not supported: {field}")
            }
            Self::Continue(fault) => write!(f, "invalid continue token: continue key is not valid: {fault}"),
            Self::NotAVersion(text) => {
                write!(f, "invalid resource version: {}", Unreasoned::NotAVersionToRead(text.clone()))
            }
            Self::VersionWithContinue => f.write_str("specifying resource version is not allowed when using continue"),
            Self::NoNamespace => f.write_str("no namespace on request"),
            Self::NoNameInPath => f.write_str("name must be provided"),
            Self::NoNameParameter => f.write_str("Name parameter required."),
            Self::NoNamespaceParameter => f.write_str("Namespace parameter required."),
            Self::ImpersonationWithoutUser(wanted) => {
                write!(f, "requested {wanted} without impersonating a user name")
            }
            Self::NoToken => f.write_str("token is required for TokenReview in authentication"),
            Self::OtherAccount { account } => write!(
                f,
                "cannot bind token for serviceaccount \"{account}\" to pod running with different serviceaccount name."
            ),
            Self::NotBindable { kind } => write!(f, "cannot bind token to object of type {kind}"),
            Self::NoHost { pod } => write!(f, "pod {pod} does not have a host assigned"),
            Self::NoContainer { pod, names } if names.is_empty() => {
                write!(f, "a container name must be specified for pod {pod}")
            }
            Self::NoContainer { pod, names } => {
                write!(f, "a container name must be specified for pod {pod}, choose one of: [{}]", names.join(" "))
            }
            Self::OtherContainer { pod, container } => write!(f, "container {container} is not valid for pod {pod}"),
            Self::BadWay { resource, name } => write!(f, "invalid {resource} request {name:?}"),
            Self::NoDryRun => f.write_str("dryRun is not supported"),
            Self::NoAddress => f.write_str("address not allowed"),
            Self::BrokenBody(fault) => write!(f, "the body cannot be read: {fault}"),
            Self::OtherNameInBinding => f.write_str("name in URL does not match name in Binding object"),
            Self::OtherNameInEviction => f.write_str("name in URL does not match name in Eviction object"),
            Self::OtherOptions { wanted, version, kind } => {
                write!(f, "decoded object cannot be converted to {wanted}: {version}, Kind={kind}")
            }
            Self::DryRunDisabled => f.write_str("the dryRun feature is disabled"),
            Self::Timeout(why) => write!(f, "invalid timeout specified in the request URL - {why}"),
            Self::UnknownIncludeObject(value) => write!(
                f,
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', \
                 'Object', 'None', or empty",
                quoted(value)
            ),
            Self::NotANumber(text) => {
                let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
                write!(f, "strconv.ParseInt: parsing {}: {}", quoted(text), no_number(digits))
            }
            Self::NotAPort(text) => {
                write!(f, "cannot convert to []int32: strconv.ParseUint: parsing {}: {}", quoted(text), no_number(text))
            }
            Self::MissingParameter(name) => write!(f, "the parameter {name} is missing"),
            Self::NoCount { parameter, text } => write!(f, "{parameter}: {text:?} is not a number"),
            Self::TooManyOffsets { found, count_max } => write!(f, "offsets: {found} are more than {count_max}"),
            Self::WebSocket(fault) => write!(f, "the WebSocket cannot be opened: {fault}"),
            Self::Fork(fault) => write!(f, "{fault}"),
        }
    }
}

impl Display for Unmarshal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Unmarshal { found, field, expected } = self;
        match *field {
            "" => write!(f, "json: cannot unmarshal {found} into Go value of type {expected}"),
            field => write!(f, "json: cannot unmarshal {found} into Go struct field {field} of type {expected}"),
        }
    }
}

impl Display for Unrecognized {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const STAGE: &str = "couldn't get version/kind; json parse error: ";
        match self {
            Self::Body { is_json: true, fault, shown } => write!(f, "{STAGE}{fault} ({shown})"),
            Self::Body { is_json: false, fault, shown } => write!(f, "{fault} ({shown})"),
            Self::TypeMeta(fault) => write!(f, "{STAGE}{fault}"),
            Self::Options(fault) => write!(f, "{fault}"),
            Self::OptionsAreNoObject => f.write_str("it is not an object"),
        }
    }
}

impl Display for Unfit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAnObject => f.write_str("the body is not an object"),
            Self::Layout(fault) => write!(f, "{fault}"),
            Self::Strict(complaints) => write!(f, "strict decoding error: {}", complaints.join(", ")),
            Self::Kind(fault) => write!(f, "{fault}"),
        }
    }
}

impl Display for KindFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unregistered { kind, api_version } => {
                write!(f, "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"{SCHEME}\"")
            }
            Self::NoConversion { from: (version, kind), to: (group, wanted) } => {
                write!(f, "converting ({version}.{kind}) to ({group}.{wanted}): unknown conversion")
            }
        }
    }
}

impl Display for PatchFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable(fault) => write!(f, "{fault}"),
            Self::Unmarshal(fault) => write!(f, "{fault}"),
        }
    }
}

impl Display for ApplyFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable(fault) => write!(f, "error decoding YAML: error converting YAML to JSON: {fault}"),
            Self::Unmarshal(fault) => {
                write!(f, "error decoding YAML: error unmarshaling JSON: while decoding JSON: {fault}")
            }
            Self::NotAnObject => f.write_str("error decoding YAML: the applied configuration is not an object"),
            Self::OtherKind { kind } => write!(f, "invalid object type: {kind}"),
            Self::Strict(complaints) => write!(f, "error strict decoding YAML: {}", complaints.join(", ")),
            Self::OtherVersion { found, expected } => write!(
                f,
                "Incorrect version specified in apply patch. Specified patch version: {found}, expected: {expected}"
            ),
            Self::ManagedFields => f.write_str("metadata.managedFields must be nil"),
        }
    }
}

impl Display for ContinueFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBase64 { at } => write!(f, "illegal base64 data at input byte {at}"),
            Self::NotJson(fault) => write!(f, "{fault}"),
            Self::OtherRelease => f.write_str("it was issued by another release of this server: start a new list"),
            Self::UnknownApi(api) => write!(f, "server does not recognize this encoded version {}", quoted(api)),
            Self::NoVersion => f.write_str("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
            Self::NoStart => f.write_str("encoded start key empty (version meta.k8s.io/v1)"),
            Self::OddStart(start) => f.write_str(start),
        }
    }
}

impl Display for WebSocketFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoUpgrade => "this connection cannot be upgraded",
            Self::OtherVersion => "Sec-WebSocket-Version must be 13",
            Self::NoKey => "Sec-WebSocket-Key is missing",
        })
    }
}

impl Display for ForkFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecodable(fault) => {
                write!(f, "expected {{\"at\": \"MOMENT\", \"idleSeconds\": 60}}, or a \"folder\" beside \"at\": {fault}")
            }
            Self::RelativeFolder(folder) => {
                write!(f, "folder {folder} is not an absolute path: the server does not know the client's directory")
            }
            Self::Folder(fault) => write!(f, "{fault}"),
            Self::NoneInMemory => f.write_str(
                "this server makes no forks in memory: start it with --forks-max, or name the folder of a fork on its disk",
            ),
            Self::TooDeep { depth_max } => {
                write!(f, "forks of forks are limited to {depth_max} levels: fork one of a lower level")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_too_large_or_none_at_all() {
        let large = "99999999999999999999";
        for (text, why) in [
            ("x", "invalid syntax"),
            ("", "invalid syntax"),
            ("-", "invalid syntax"),
            (large, "value out of range"),
            ("-99999999999999999999", "value out of range"),
        ] {
            let told = BadRequest::NotANumber(text.into()).to_string();
            assert_eq!(told, format!("strconv.ParseInt: parsing \"{text}\": {why}"));
        }
        for (text, why) in [("-1", "invalid syntax"), (large, "value out of range")] {
            let told = BadRequest::NotAVersion(text.into()).to_string();
            assert!(told.ends_with(&format!("strconv.ParseUint: parsing \"{text}\": {why}")), "{told}");
        }
    }
}
