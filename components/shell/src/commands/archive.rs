//! `tar`, as far as `kubectl cp` needs it: `ustar` archives of files and folders.

use super::wrong;
use crate::files::{Trouble, absolute};
use crate::shell::{Open, Shell, ShellResult};

const BLOCK: usize = 512;
/// The maximum number of entries that are extracted from an archive. Entries that cannot be written count, too.
const ENTRIES_MAX: usize = 10_000;
/// The maximum size, in bytes, of an entry that contains only the long name or the attributes of the next entry.
const NAME_BYTES_MAX: usize = 8192;

#[derive(Default)]
struct ArchiveOptions {
    creates: bool,
    extracts: bool,
    lists: bool,
    tells: bool,
    file: Option<String>,
    folder: Option<String>,
    names: Vec<String>,
    strips: usize,
}

fn order(words: &[String]) -> Result<ArchiveOptions, String> {
    let mut order = ArchiveOptions::default();
    let mut words = words.iter();
    let mut is_first = true;
    while let Some(word) = words.next() {
        let letters = match word.strip_prefix('-') {
            Some("") => return Err("invalid option '-'".into()),
            Some(letters) => letters,
            None if is_first => word.as_str(),
            None => {
                order.names.push(word.clone());
                continue;
            }
        };
        is_first = false;
        if let Some(long) = letters.strip_prefix('-') {
            match long.split_once('=') {
                _ if long.starts_with("no-same") || long == "preserve" || long == "warning=no-unknown-keyword" => {}
                Some(("strip-components", count)) => order.strips = count.parse().unwrap_or(0),
                Some(("directory", folder)) => order.folder = Some(folder.to_owned()),
                Some(("file", file)) => order.file = Some(file.to_owned()),
                _ => return Err(format!("unrecognized option: {long}")),
            }
            continue;
        }
        let mut letters = letters.chars();
        while let Some(letter) = letters.next() {
            match letter {
                'c' => order.creates = true,
                'x' => order.extracts = true,
                't' => order.lists = true,
                'v' => order.tells = true,
                'm' | 'p' | 'o' | 'h' | 'P' => {}
                'f' | 'C' => {
                    let rest: String = letters.by_ref().collect();
                    let value = if rest.is_empty() { words.next().cloned() } else { Some(rest) };
                    let value = value.ok_or(format!("option requires an argument: {letter}"))?;
                    match letter {
                        'f' => order.file = Some(value),
                        _ => order.folder = Some(value),
                    }
                }
                'z' | 'j' | 'J' => return Err("archives that are compressed are not known here".into()),
                other => return Err(format!("unrecognized option: {other}")),
            }
        }
    }
    Ok(order)
}

pub async fn tar(shell: &mut Shell, words: &[String]) -> ShellResult<i32> {
    let order = match order(words) {
        Ok(order) => order,
        Err(why) => return wrong(shell, "tar", why).await,
    };
    let before = shell.folder.clone();
    let file = order.file.clone().unwrap_or_else(|| "-".into());
    let archive = if file == "-" { None } else { Some(absolute(&before, &file)) };
    if let Some(folder) = &order.folder {
        shell.folder = absolute(&before, folder);
        if !shell.shared.lock().files.is_folder(&shell.folder) {
            shell.folder = before;
            return wrong(shell, "tar", format!("can't change directory to '{folder}': No such file or directory"))
                .await;
        }
    }
    let done = match (order.creates, order.extracts || order.lists) {
        (true, false) => create(shell, &order, archive).await,
        (false, true) => extract(shell, &order, archive).await,
        _ => wrong(shell, "tar", "must specify one of -c, -x, -t").await,
    };
    shell.folder = before;
    done
}

async fn create(shell: &mut Shell, order: &ArchiveOptions, archive: Option<String>) -> ShellResult<i32> {
    let number = match archive {
        None => 1,
        Some(path) => match shell.open_to_write(&path, false) {
            Ok(open) => {
                shell.open.insert(9, open);
                9
            }
            Err(Trouble(why)) => return wrong(shell, "tar", format!("{path}: {why}")).await,
        },
    };
    let mut status = 0;
    for name in &order.names {
        let path = absolute(&shell.folder, name);
        let paths: Option<Vec<String>> = {
            let system = shell.shared.lock();
            let inside = || system.files.below(&path);
            system.files.entry(&path).map(|_| std::iter::once(path.clone()).chain(inside()).collect())
        };
        let Some(paths) = paths else {
            status = wrong(shell, "tar", format!("{name}: No such file or directory")).await?;
            continue;
        };
        let shown = name.trim_start_matches('/').trim_end_matches('/');
        for inside in paths {
            let entry = shell.shared.lock().files.entry(&inside);
            let Some(entry) = entry else { continue };
            let rest = &inside[if path == "/" { 0 } else { path.len() }..];
            let mut told = format!("{shown}{rest}");
            if entry.content.is_none() {
                told.push('/');
            }
            if told == "/" {
                continue;
            }
            if order.tells {
                shell.complain(&told).await?;
            }
            let content = entry.content.as_deref().map_or(&[][..], Vec::as_slice);
            let kind = if entry.content.is_none() { b'5' } else { b'0' };
            let mut bytes = Vec::new();
            if told.len() > 100 {
                let long = [told.as_bytes(), b"\0"].concat();
                bytes.extend(head("././@LongLink", 0o644, long.len(), 0, b'L'));
                bytes.extend(padded(&long));
            }
            bytes.extend(head(&told, entry.mode, content.len(), entry.changed_ms / 1000, kind));
            bytes.extend(padded(content));
            shell.put(number, &bytes).await?;
        }
    }
    shell.put(number, &[0; 2 * BLOCK]).await?;
    shell.open.remove(&9);
    Ok(status)
}

fn padded(content: &[u8]) -> Vec<u8> {
    let mut padded = content.to_vec();
    padded.resize(content.len().next_multiple_of(BLOCK), 0);
    padded
}

fn head(name: &str, mode: u32, size: usize, seconds: i64, kind: u8) -> [u8; BLOCK] {
    let mut head = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8], max: usize| {
        let count = bytes.len().min(max);
        head[at..at + count].copy_from_slice(&bytes[..count]);
    };
    put(0, name.as_bytes(), 100);
    put(100, format!("{:07o}", mode & 0o7777).as_bytes(), 7);
    put(108, b"0000000", 7);
    put(116, b"0000000", 7);
    put(124, format!("{size:011o}").as_bytes(), 11);
    put(136, format!("{:011o}", seconds.max(0)).as_bytes(), 11);
    put(148, b"        ", 8);
    put(156, &[kind], 1);
    put(257, b"ustar\x0000root", 12);
    put(297, b"root", 4);
    let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
    head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    head
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).into_owned()
}

fn octal(field: &[u8]) -> Option<usize> {
    let digits = text(field);
    let digits = digits.trim();
    if digits.is_empty() { Some(0) } else { usize::from_str_radix(digits, 8).ok() }
}

/// The path that an entry of extended attributes gives for the next entry; `None` if it gives no path.
fn path_of(attributes: &[u8]) -> Option<String> {
    let mut rest = attributes;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let record = rest.get(space + 1..length.checked_sub(1)?)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(String::from_utf8_lossy(path).into_owned());
        }
        rest = rest.get(length..)?;
    }
    None
}

/// Reads an archive in blocks of exactly the given size. The last block may be shorter.
struct Blocks {
    from: Open,
    held: Vec<u8>,
}

impl Blocks {
    async fn take(&mut self, shell: &mut Shell, count: usize) -> ShellResult<Vec<u8>> {
        while self.held.len() < count {
            match shell.take(&self.from, false).await? {
                Some(more) => self.held.extend(more),
                None => break,
            }
        }
        let rest = self.held.split_off(count.min(self.held.len()));
        Ok(std::mem::replace(&mut self.held, rest))
    }
}

async fn extract(shell: &mut Shell, order: &ArchiveOptions, archive: Option<String>) -> ShellResult<i32> {
    let from = match archive {
        None => shell.input(),
        Some(path) => match shell.open_to_read(&path) {
            Ok(open) => open,
            Err(Trouble(why)) => return wrong(shell, "tar", format!("can't open '{path}': {why}")).await,
        },
    };
    let mut blocks = Blocks { from, held: Vec::new() };
    let (mut status, mut long) = (0, None);
    for number in 0.. {
        let head = blocks.take(shell, BLOCK).await?;
        if head.len() < BLOCK || head.iter().all(|byte| *byte == 0) {
            if number == 0 && head.len() < BLOCK {
                return wrong(shell, "tar", "short read").await;
            }
            break;
        }
        if number >= ENTRIES_MAX {
            return wrong(shell, "tar", "too many files").await;
        }
        let (Some(size), Some(mode)) = (octal(&head[124..136]), octal(&head[100..108])) else {
            return wrong(shell, "tar", "invalid tar magic").await;
        };
        let kind = head[156];
        if matches!(kind, b'L' | b'x' | b'g') {
            if size > NAME_BYTES_MAX {
                return wrong(shell, "tar", "a name is too long").await;
            }
            let content = blocks.take(shell, size.next_multiple_of(BLOCK)).await?;
            let content = content.get(..size).unwrap_or(&content);
            match kind {
                b'L' => long = Some(text(content)),
                b'x' => long = path_of(content).or(long),
                _ => {}
            }
            continue;
        }
        let prefix = if &head[257..262] == b"ustar" { text(&head[345..500]) } else { String::new() };
        let own = text(&head[..100]);
        let own = if prefix.is_empty() { own } else { format!("{prefix}/{own}") };
        let name = long.take().unwrap_or(own);
        let parts: Vec<&str> = name.split('/').filter(|part| !part.is_empty()).skip(order.strips).collect();
        // Whatever the name of an entry is, the path is within the folder into which the archive is extracted.
        let path = absolute(&shell.folder, &absolute("/", &parts.join("/"))[1..]);
        if order.tells || order.lists {
            shell.print(&format!("{name}\n")).await?;
        }
        let is_file = matches!(kind, b'0' | 0 | b'7');
        let mut content = Vec::new();
        let (mut left, mut padding) = (size, size.next_multiple_of(BLOCK) - size);
        // If the content of an entry does not fit, it is read and dropped.
        while left > 0 {
            let some = blocks.take(shell, left.min(BLOCK * 16)).await?;
            if some.is_empty() {
                return wrong(shell, "tar", "short read").await;
            }
            left -= some.len();
            if content.len() <= crate::files::BYTES_MAX {
                content.extend(some);
            }
        }
        while padding > 0 {
            let some = blocks.take(shell, padding).await?.len();
            if some == 0 {
                break;
            }
            padding -= some;
        }
        if order.lists {
            continue;
        }
        let done = {
            let mut system = shell.shared.lock();
            let now_ms = system.now_ms;
            let files = &mut system.files;
            let parent = absolute(&path, "..");
            files.make_folders(&parent, now_ms).and_then(|()| match kind {
                b'5' => files.make_folders(&path, now_ms),
                _ if is_file => {
                    files.write(&path, content, now_ms)?;
                    files.set_mode(&path, u32::try_from(mode & 0o7777).unwrap_or(0o644))
                }
                _ => Err(Trouble("links are not known here")),
            })
        };
        if let Err(Trouble(why)) = done {
            status = wrong(shell, "tar", format!("can't open '{name}': {why}")).await?;
        }
    }
    Ok(status)
}
