//! The commands `test` and `expr`.

use super::wrong;
use crate::files::absolute;
use crate::shell::{Shell, ShellResult};

/// The maximum depth of `!` and brackets within each other.
const DEPTH_MAX: u32 = 32;

pub async fn test(shell: &mut Shell, name: &str, words: &[String]) -> ShellResult<i32> {
    let words = match (name, words.split_last()) {
        ("[", Some((last, words))) if last == "]" => words,
        ("[", _) => return wrong(shell, "sh: [", "missing ]").await.map(|_| 2),
        _ => words,
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let judged = TestExpression { shell, words: &words, at: 0, depth: 0 }.whole();
    match judged {
        Ok(holds) => Ok(i32::from(!holds)),
        Err(why) => wrong(shell, "sh: test", why).await.map(|_| 2),
    }
}

struct TestExpression<'a> {
    shell: &'a Shell,
    words: &'a [&'a str],
    at: usize,
    depth: u32,
}

impl TestExpression<'_> {
    fn whole(mut self) -> Result<bool, String> {
        // As POSIX demands, if there are at most four words, their number alone decides what they mean. So any word may
        // be arbitrary text.
        match self.words {
            [] => return Ok(false),
            [word] => return Ok(!word.is_empty()),
            ["!", word] => return Ok(word.is_empty()),
            [left, sign, right] if is_sign(sign) => return compare(self.shell, left, sign, right),
            _ => {}
        }
        let holds = self.any()?;
        if self.at < self.words.len() { Err(format!("{}: unknown operand", self.words[self.at])) } else { Ok(holds) }
    }

    fn takes(&mut self, word: &str) -> bool {
        let is_there = self.words.get(self.at) == Some(&word);
        self.at += usize::from(is_there);
        is_there
    }

    fn any(&mut self) -> Result<bool, String> {
        let mut holds = self.all()?;
        while self.takes("-o") {
            holds |= self.all()?;
        }
        Ok(holds)
    }

    fn all(&mut self) -> Result<bool, String> {
        let mut holds = self.not()?;
        while self.takes("-a") {
            holds &= self.not()?;
        }
        Ok(holds)
    }

    fn not(&mut self) -> Result<bool, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("too many operators".into());
        }
        let holds = if self.takes("!") { !self.not()? } else { self.primary()? };
        self.depth -= 1;
        Ok(holds)
    }

    fn primary(&mut self) -> Result<bool, String> {
        let rest = &self.words[self.at.min(self.words.len())..];
        match rest {
            [left, sign, right, ..] if is_sign(sign) => {
                self.at += 3;
                compare(self.shell, left, sign, right)
            }
            ["(", ..] => {
                self.at += 1;
                let holds = self.any()?;
                if self.takes(")") { Ok(holds) } else { Err("closing paren expected".into()) }
            }
            [sign, operand, ..] if sign.len() == 2 && sign.starts_with('-') => {
                self.at += 2;
                about(self.shell, sign, operand)
            }
            [word, ..] => {
                self.at += 1;
                Ok(!word.is_empty())
            }
            [] => Err("argument expected".into()),
        }
    }
}

fn is_sign(sign: &str) -> bool {
    matches!(
        sign,
        "=" | "==" | "!=" | "<" | ">" | "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" | "-nt" | "-ot" | "-ef"
    )
}

fn about(shell: &Shell, sign: &str, operand: &str) -> Result<bool, String> {
    let path = absolute(&shell.folder, operand);
    let system = shell.shared.lock();
    let entry = system.files.entry(&path);
    let is_device = matches!(operand, "/dev/null" | "/dev/stdin" | "/dev/stdout" | "/dev/stderr" | "/dev/tty");
    Ok(match sign {
        "-n" => !operand.is_empty(),
        "-z" => operand.is_empty(),
        "-e" | "-r" | "-w" | "-a" => entry.is_some() || is_device && !operand.is_empty(),
        "-f" => entry.is_some_and(|entry| entry.content.is_some()),
        "-d" => entry.is_some_and(|entry| entry.content.is_none()),
        "-s" => entry.is_some_and(|entry| entry.content.as_ref().is_none_or(|content| !content.is_empty())),
        "-x" => entry.is_some_and(|entry| entry.mode & 0o111 != 0) || crate::knows(operand) && operand.starts_with('/'),
        "-c" => is_device,
        "-b" | "-p" | "-S" | "-L" | "-h" | "-t" | "-u" | "-g" | "-k" => false,
        _ => return Err(format!("{sign}: unknown operand")),
    })
}

fn compare(shell: &Shell, left: &str, sign: &str, right: &str) -> Result<bool, String> {
    let number = |text: &str| text.trim().parse::<i64>().map_err(|_| format!("{text}: bad number"));
    let changed = |name: &str| {
        let path = absolute(&shell.folder, name);
        shell.shared.lock().files.entry(&path).map(|entry| entry.changed_ms)
    };
    Ok(match sign {
        "=" | "==" => left == right,
        "!=" => left != right,
        "<" => left < right,
        ">" => left > right,
        "-nt" => changed(left) > changed(right),
        "-ot" => changed(left) < changed(right),
        "-ef" => absolute(&shell.folder, left) == absolute(&shell.folder, right),
        sign => {
            let (left, right) = (number(left)?, number(right)?);
            match sign {
                "-eq" => left == right,
                "-ne" => left != right,
                "-lt" => left < right,
                "-le" => left <= right,
                "-gt" => left > right,
                _ => left >= right,
            }
        }
    })
}

pub async fn expr(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let text = match words {
        [left, sign, right] if matches!(sign.as_str(), "=" | "!=") => {
            i64::from((left == right) == (sign == "=")).to_string()
        }
        [word] => word.clone(),
        words => {
            let expression = words.join(" ").replace(" = ", " == ");
            match crate::arithmetic::evaluate(&expression, &|_| String::new()) {
                Ok(number) => number.to_string(),
                Err(_) => return wrong(shell, "expr", "syntax error").await.map(|_| 2),
            }
        }
    };
    shell.print(&format!("{text}\n")).await?;
    Ok(i32::from(matches!(text.as_str(), "" | "0")))
}
