//! A terminal between a client and a command. The client can edit lines, and sees what it types as an echo.

/// The longest line, in bytes.
const LINE_BYTES_MAX: usize = 4096;
/// The maximum number of echoed bytes that wait for a slow client.
const ECHO_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Default)]
pub struct Terminal {
    line: Vec<u8>,
    echo: Vec<u8>,
    /// Whether the last input bytes were the beginning of an escape sequence, such as the sequence of an arrow key.
    in_sequence: bool,
}

/// The effects of typed bytes on the command.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// The lines that the typed bytes have completed.
    pub line: Vec<u8>,
    pub ends: bool,
    pub interrupts: bool,
}

impl Terminal {
    pub fn typed(&mut self, bytes: &[u8]) -> Typed {
        let mut typed = Typed::default();
        for byte in bytes {
            if self.in_sequence {
                self.in_sequence = !byte.is_ascii_alphabetic() && *byte != b'~';
                continue;
            }
            match byte {
                b'\r' | b'\n' => {
                    self.show(b"\r\n");
                    self.line.push(b'\n');
                    typed.line.append(&mut self.line);
                }
                0x03 => {
                    self.show(b"^C\r\n");
                    self.line.clear();
                    typed.interrupts = true;
                }
                0x04 if self.line.is_empty() => typed.ends = true,
                0x04 => typed.line.append(&mut self.line),
                0x08 | 0x7f => {
                    // All bytes of the last UTF-8 character are removed.
                    while self.line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
                    self.show(b"\x08 \x08");
                }
                0x15 => self.line.clear(),
                0x1b => self.in_sequence = true,
                byte if (*byte >= b' ' || *byte == b'\t') && self.line.len() < LINE_BYTES_MAX => {
                    self.line.push(*byte);
                    self.show(&[*byte]);
                }
                _ => {}
            }
        }
        typed
    }

    fn show(&mut self, bytes: &[u8]) {
        if self.echo.len() < ECHO_BYTES_MAX {
            self.echo.extend_from_slice(bytes);
        }
    }

    /// Takes the echo of the characters that were typed.
    pub fn echo(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.echo)
    }
}

/// Converts output for the terminal: each line break becomes CR LF.
pub fn shown(output: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(output.len() + 8);
    for byte in output {
        if *byte == b'\n' {
            shown.push(b'\r');
        }
        shown.push(*byte);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_edited() {
        let mut terminal = Terminal::default();
        let typed = terminal.typed(b"lx\x7fs\x1b[A\rab");
        assert_eq!(typed.line, b"ls\n");
        assert_eq!(terminal.echo(), b"lx\x08 \x08s\r\nab");
        assert!(terminal.typed(b"\x03").interrupts);
        assert!(terminal.typed(b"\x04").ends);
        assert_eq!(shown(b"a\nb"), b"a\r\nb");
    }
}
