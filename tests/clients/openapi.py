#!/usr/bin/env python3
"""Validates the OpenAPI documents of the cluster in KUBECONFIG: version 2 as JSON and as Protobuf, and version 3."""

import json
import os
import struct
import sys

from kubernetes import client, config
from openapi_spec_validator import OpenAPIV2SpecValidator, OpenAPIV30SpecValidator

JSON = "application/json"
V2_PROTOBUF_ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
METHODS = {"delete", "get", "head", "options", "patch", "post", "put"}
METHOD_OF_VERB = {"create": "post", "delete": "delete", "get": "get", "patch": "patch", "update": "put"}


def main():
    if not os.environ.get("KUBECONFIG"):
        sys.exit("set KUBECONFIG to the kubeconfig of the cluster to test")
    config.load_kube_config()
    api = client.ApiClient()
    document = step("version 2 is valid", lambda: version_2(api))
    step("version 2 in Protobuf is equal to version 2 in JSON", lambda: version_2_protobuf(api, document))
    paths = document_paths(api)
    expect_true("api/v1" in paths and "apis/apps/v1" in paths, sorted(paths))
    documents = {path: step(f"version 3 of {path} is valid", lambda: version_3(api, path, url))
                 for path, url in sorted(paths.items())}
    step("the documents describe the resources in discovery", lambda: operations_match(api, document, documents))
    step("a document with a known ETag is not sent again", lambda: not_sent_again(api, paths["apis/apps/v1"]))


def version_2(api):
    document = parsed(fetch(api, "/openapi/v2", JSON).data)
    expect(document["swagger"], "2.0")
    expect_valid(OpenAPIV2SpecValidator(without_zero_defaults(document)))
    expect_whole(document, ["definitions", "parameters"])
    return document


def version_2_protobuf(api, document):
    answer = fetch(api, "/openapi/v2", V2_PROTOBUF_ASKED)
    expect(answer.headers["Content-Type"], V2_PROTOBUF)
    expect_alike(decode("Document", answer.data), document, "")


def document_paths(api):
    index = parsed(fetch(api, "/openapi/v3", JSON).data)["paths"]
    return {path: entry["serverRelativeURL"] for path, entry in index.items()}


def version_3(api, path, url):
    expect_true(url.startswith(f"/openapi/v3/{path}?hash="), url)
    document = parsed(fetch(api, url, JSON).data)
    expect(document["openapi"].rpartition(".")[0], "3.0")
    expect_valid(OpenAPIV30SpecValidator(without_zero_defaults(document)))
    expect_whole(document, ["components/schemas"])
    return document


def operations_match(api, v2, v3):
    """Checks that discovery and both versions have the same operations, and that each operation has a unique id."""
    wanted = {("/api/", "get"), ("/apis/", "get"), ("/version/", "get")}
    groups = parsed(fetch(api, "/apis", JSON).data)["groups"]
    wanted |= {(f"/apis/{group['name']}/", "get") for group in groups}
    prefixes = ["/api/v1"] + [f"/apis/{version['groupVersion']}" for group in groups for version in group["versions"]]
    for prefix in prefixes:
        wanted.add((prefix + "/", "get"))
        for resource in parsed(fetch(api, prefix, JSON).data)["resources"]:
            wanted |= operations_of(prefix, resource)
    described = operations(v2)
    expect_same(set(described), wanted)
    expect(len(set(described.values())), len(described))
    apart = [place for document in v3.values() for place in operations(document).items()]
    expect_same(set(apart), set(described.items()))
    expect(len(apart), len(described))


def operations_of(prefix, resource):
    """Returns the paths and methods of a resource in discovery."""
    main, _, part = resource["name"].partition("/")
    space = "/namespaces/{namespace}" if resource["namespaced"] else ""
    collection, verbs = f"{prefix}{space}/{main}", set(resource["verbs"])
    item = f"{collection}/{{name}}"
    if part:
        methods = {METHOD_OF_VERB[verb] for verb in verbs}
        if part == "proxy":
            return {(path, method) for path in (f"{item}/proxy", f"{item}/proxy/{{path}}")
                    for method in methods | {"head", "options"}}
        return {(f"{item}/{part}", method) for method in methods}
    found = {(item, METHOD_OF_VERB[verb]) for verb in verbs & {"get", "update", "patch", "delete"}}
    if "create" in verbs:
        found.add((collection, "post"))
    if "deletecollection" in verbs:
        found.add((collection, "delete"))
    if "list" in verbs:
        found |= {(collection, "get"), (f"{prefix}/{main}", "get")}
    if "watch" in verbs:
        found |= {(f"{prefix}/watch{space}/{main}", "get"), (f"{prefix}/watch{space}/{main}/{{name}}", "get"),
                  (f"{prefix}/watch/{main}", "get")}
    return found


def operations(document):
    """Returns the ids of all operations in a document, by path and method."""
    return {(path, method): operation["operationId"] for path, item in document["paths"].items()
            for method, operation in item.items() if method in METHODS}


def not_sent_again(api, url):
    tag = fetch(api, url, JSON).headers["ETag"]
    expect_true(tag.startswith('"') and tag.endswith('"') and '"' not in tag[1:-1], f"the tag is not in quotes: {tag}")
    answer = fetch(api, url, JSON, status=304, **{"If-None-Match": tag})
    expect(answer.data, b"")


def without_zero_defaults(value):
    """Removes the defaults {} and "". Kubernetes gives such a default to the items of every list, even if the schema of
    the items forbids the value, and the validator would refuse this."""
    if isinstance(value, dict):
        return {key: without_zero_defaults(of) for key, of in value.items() if not (key == "default" and of in ({}, ""))}
    return [without_zero_defaults(of) for of in value] if isinstance(value, list) else value


def expect_valid(validator):
    errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message[:200]}" for error in validator.iter_errors()]
    if errors:
        raise AssertionError(f"{len(errors)} errors: " + "; ".join(errors[:10]))


def expect_whole(document, shared):
    """Checks that every reference can be resolved, and that every shared definition is used."""
    used = set(references(document))
    known = set()
    for place in shared:
        within = document
        for key in place.split("/"):
            within = within[key]
        known |= {f"#/{place}/{name}" for name in within}
    expect_same(used, known)


def references(value):
    if isinstance(value, dict):
        # `$ref` may also be the name of a property. Then its value is not a string.
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        value = value.values()
    elif not isinstance(value, list):
        return
    for inner in value:
        yield from references(inner)


# The messages of openapi.v2 that describe an API. Each field is `number name type`, and `[]` marks a list. In JSON a
# message with a field `=` is the value of this field, and the entries of a field `{}` are members of the object itself.
MESSAGES = {
    "Document": "1 swagger string, 2 info Info, 3 host string, 4 basePath string, 5 schemes []string, "
                "6 consumes []string, 7 produces []string, 8 paths Paths, 9 definitions Schemas, "
                "10 parameters Parameters, 12 security []Requirement, 13 securityDefinitions SecurityDefinitions, "
                "16 {} Extension",
    "Info": "1 title string, 2 version string, 3 description string, 7 {} Extension",
    "Paths": "1 {} Extension, 2 {} NamedPathItem",
    "NamedPathItem": "1 name string, 2 value PathItem",
    "PathItem": "1 $ref string, 2 get Operation, 3 put Operation, 4 post Operation, 5 delete Operation, "
                "6 options Operation, 7 head Operation, 8 patch Operation, 9 parameters []ParameterOrReference, "
                "10 {} Extension",
    "Operation": "1 tags []string, 2 summary string, 3 description string, 5 operationId string, "
                 "6 produces []string, 7 consumes []string, 8 parameters []ParameterOrReference, "
                 "9 responses Responses, 10 schemes []string, 11 deprecated bool, 12 security []Requirement, "
                 "13 {} Extension",
    "ParameterOrReference": "1 = Parameter, 2 = Reference",
    "Reference": "1 $ref string, 2 description string",
    "Parameters": "1 {} NamedParameter",
    "NamedParameter": "1 name string, 2 value Parameter",
    "Parameter": "1 = BodyParameter, 2 = NonBodyParameter",
    "BodyParameter": "1 description string, 2 name string, 3 in string, 4 required bool, 5 schema Schema, "
                     "6 {} Extension",
    "NonBodyParameter": "3 = QueryParameter, 4 = PathParameter",
    "QueryParameter": "1 required bool, 2 in string, 3 description string, 4 name string, 6 type string, "
                      "7 format string, 20 uniqueItems bool, 23 {} Extension",
    "PathParameter": "1 required bool, 2 in string, 3 description string, 4 name string, 5 type string, "
                     "6 format string, 19 uniqueItems bool, 22 {} Extension",
    "Responses": "1 {} NamedResponse, 2 {} Extension",
    "NamedResponse": "1 name string, 2 value ResponseOrReference",
    "ResponseOrReference": "1 = Response, 2 = Reference",
    "Response": "1 description string, 2 schema SchemaItem, 5 {} Extension",
    "SchemaItem": "1 = Schema",
    "Schemas": "1 {} NamedSchema",
    "NamedSchema": "1 name string, 2 value Schema",
    "Schema": "1 $ref string, 2 format string, 3 title string, 4 description string, 5 default Any, "
              "6 multipleOf double, 7 maximum double, 8 exclusiveMaximum bool, 9 minimum double, "
              "10 exclusiveMinimum bool, 11 maxLength int, 12 minLength int, 13 pattern string, 14 maxItems int, "
              "15 minItems int, 16 uniqueItems bool, 17 maxProperties int, 18 minProperties int, "
              "19 required []string, 20 enum []Any, 21 additionalProperties SchemaOrBool, 22 type Type, 23 items Items, "
              "24 allOf []Schema, 25 properties Schemas, 27 readOnly bool, 30 example Any, 31 {} Extension",
    "SchemaOrBool": "1 = Schema, 2 = bool",
    "Type": "1 = string",
    "Items": "1 = Schema",
    "Requirement": "1 {} NamedScopes",
    "NamedScopes": "1 name string, 2 value Scopes",
    "Scopes": "1 = []string",
    "SecurityDefinitions": "1 {} NamedSecurity",
    "NamedSecurity": "1 name string, 2 value Security",
    "Security": "2 = ApiKey",
    "ApiKey": "1 type string, 2 name string, 3 in string, 4 description string, 5 {} Extension",
    "Extension": "1 name string, 2 value Any",
    "Any": "2 = yaml",
}
FIELDS = {message: {int(number): (name, type) for number, name, type in (field.split() for field in text.split(", "))}
          for message, text in MESSAGES.items()}


def decode(message, data):
    """Converts a Protobuf message to its JSON."""
    fields = FIELDS[message]
    result = {name: [] for name, type in fields.values() if name == "=" and type.startswith("[]")}
    for number, raw in wire(data):
        if number not in fields:
            raise AssertionError(f"{message} has an unknown field {number}")
        name, type = fields[number]
        value = scalar(type.removeprefix("[]"), raw)
        if name == "{}":
            if value["name"] in result:
                raise AssertionError(f"{message} has {value['name']} twice")
            result[value["name"]] = value["value"]
        elif type.startswith("[]"):
            result.setdefault(name, []).append(value)
        else:
            result[name] = value
    return result["="] if "=" in result else result


def scalar(type, raw):
    if type == "string":
        return raw.decode()
    if type == "yaml":
        return json.loads(raw)
    if type == "double":
        return struct.unpack("<d", raw)[0]
    if type == "bool":
        return bool(raw)
    return raw if type == "int" else decode(type, raw)


def wire(data):
    """Yields the number and the raw value of each field: an int for a variable-length integer, otherwise bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind in (1, 2):
            length, at = (8, at) if kind == 1 else varint(data, at)
            value, at = data[at:at + length], at + length
            expect(len(value), length)
        else:
            raise AssertionError(f"wire type {kind}")
        yield key >> 3, value


def varint(data, at):
    result = shift = 0
    while True:
        byte, at = data[at], at + 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result, at
        shift += 7


def fetch(api, path, accept, status=200, **headers):
    headers = {**api.default_headers, "Accept": accept, **headers}
    api.update_params_for_auth(headers, [], ["BearerToken"], path, "GET", None)
    answer = api.rest_client.pool_manager.request("GET", api.configuration.host + path, headers=headers)
    if answer.status != status:
        raise AssertionError(f"HTTP {answer.status} for {path}: {answer.data[:200]!r}")
    return answer


def parsed(data):
    def members(pairs):
        expect(len(dict(pairs)), len(pairs))
        return dict(pairs)
    return json.loads(data, object_pairs_hook=members)


def expect(actual, wanted):
    if actual != wanted:
        raise AssertionError(f"expected {str(wanted)[:500]}, got {str(actual)[:500]}")


def expect_alike(actual, wanted, place):
    """Compares large values. The error names the place where they differ."""
    if isinstance(actual, dict) and isinstance(wanted, dict):
        expect_same(set(actual), set(wanted), place)
        for name in wanted:
            expect_alike(actual[name], wanted[name], f"{place}/{name}")
    elif actual != wanted:
        raise AssertionError(f"{place}: expected {wanted!r}, got {actual!r}")


def expect_same(actual, wanted, place=""):
    if actual != wanted:
        missing, extra = sorted(wanted - actual)[:10], sorted(actual - wanted)[:10]
        raise AssertionError(f"{place} missing: {missing}; unexpected: {extra}".strip())


def expect_true(condition, what):
    if not condition:
        raise AssertionError(f"unexpected: {what}")


def step(name, action):
    try:
        result = action()
    except Exception as error:
        print(f"FAILED {name}: {type(error).__name__}: {error}", file=sys.stderr)
        raise
    print(f"ok {name}", flush=True)
    return result


if __name__ == "__main__":
    main()
