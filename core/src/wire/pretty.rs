//! Indents JSON: a line break for each member, and two spaces for each level. The order of fields stays.

/// Indents `json`, which must be valid. Existing white space is dropped.
pub fn indented(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    let mut rest = json.iter().copied().peekable();
    let break_line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    while let Some(byte) = rest.next() {
        if in_string {
            in_string = byte != b'"' || escaped;
            escaped = byte == b'\\' && !escaped;
            out.push(byte);
            continue;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'{' | b'[' => {
                out.push(byte);
                while rest.next_if(u8::is_ascii_whitespace).is_some() {}
                match rest.next_if(|next| matches!(next, b'}' | b']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        break_line(&mut out, depth);
                    }
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                break_line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            _ => {
                in_string = byte == b'"';
                out.push(byte);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_value::{Value, json};

    #[test]
    fn it_reads_as_that_of_the_library() {
        let rows = [
            json!({}),
            json!([]),
            json!({"a": [], "b": {}, "c": [1, {"d": "e"}], "f": null}),
            json!({"quoted \" {": "a, b: [c]", "\\": "\\", "end\\": "\\\""}),
            json!("alone"),
            json!([[[-1.5e3, true]]]),
        ];
        for value in rows {
            let wanted = serde_json::to_string_pretty(&value).unwrap();
            assert_eq!(String::from_utf8(indented(value.to_string().as_bytes())).unwrap(), wanted);
            assert_eq!(String::from_utf8(indented(wanted.as_bytes())).unwrap(), wanted);
        }
    }

    #[test]
    fn fields_keep_their_order() {
        let text = indented(b"{\"kind\":\"A\",\"apiVersion\":\"v1\"}\n");
        assert_eq!(String::from_utf8(text.clone()).unwrap(), "{\n  \"kind\": \"A\",\n  \"apiVersion\": \"v1\"\n}");
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), json!({"kind": "A", "apiVersion": "v1"}));
    }
}
