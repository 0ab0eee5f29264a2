//! The bitmap of allocated node ports. All API servers on one store share it.

use super::{Fault, Media, read_record, write_record};
use crate::kinds::records::NODE_PORTS;
use base64::{Engine, engine::general_purpose::STANDARD};
use holdfast_value::json;

/// The ports of a range, each allocated or free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    first: u16,
    last: u16,
    /// Each byte stands for eight ports. The lowest port is the lowest bit of the first byte.
    bits: Vec<u8>,
}

impl Ports {
    /// The ports from `first` to `last`, all of them free.
    pub fn free((first, last): (u16, u16)) -> Ports {
        let count = usize::from(last.saturating_sub(first)) + 1;
        Ports { first, last, bits: vec![0; count.div_ceil(8)] }
    }

    /// Reads the bitmap of a range. A bitmap of another range is a fault, because it shows that the servers have
    /// different values of `--service-node-port-range`.
    pub fn read(key: &str, value: &[u8], range: (u16, u16)) -> Result<Ports, Fault> {
        let fault = |problem: &str| Fault::new(key.as_bytes(), problem);
        let document = read_record(&NODE_PORTS, key, value)?;
        let mut ports = Ports::free(range);
        let (stored, own) = (document["range"].as_str().unwrap_or_default(), ports.range());
        if stored != own {
            let problem = format!(
                "it is for the node ports {stored}, and this server uses {own}: set the same --service-node-port-range \
                 on all servers"
            );
            return Err(fault(&problem));
        }
        let data = STANDARD.decode(document["data"].as_str().unwrap_or_default());
        let data = data.map_err(|error| fault(&error.to_string()))?;
        // The data is one big-endian number without leading zeros.
        for (byte, stored) in ports.bits.iter_mut().zip(data.iter().rev()) {
            *byte = *stored;
        }
        match data.len() <= ports.bits.len() {
            true => Ok(ports),
            false => Err(fault("it has more ports than its range")),
        }
    }

    pub fn write(&self, key: &str, media: Media) -> Result<Vec<u8>, Fault> {
        let bytes: Vec<u8> = self.bits.iter().rev().copied().skip_while(|byte| *byte == 0).collect();
        let document = json!({
            "apiVersion": NODE_PORTS.api_version,
            "kind": NODE_PORTS.kind,
            "metadata": {},
            "range": self.range(),
            "data": STANDARD.encode(bytes),
        });
        write_record(&NODE_PORTS, key, &document, media)
    }

    fn range(&self) -> String {
        format!("{}-{}", self.first, self.last)
    }

    /// Whether a port is in the range.
    pub fn covers(&self, port: u16) -> bool {
        self.place(port).is_some()
    }

    /// Whether a port is allocated; false outside the range.
    pub fn has(&self, port: u16) -> bool {
        self.place(port).is_some_and(|(byte, bit)| self.bits[byte] & bit != 0)
    }

    /// Marks a port as allocated or free; returns whether that changed it.
    pub fn set(&mut self, port: u16, is_taken: bool) -> bool {
        let Some((byte, bit)) = self.place(port).filter(|_| self.has(port) != is_taken) else { return false };
        self.bits[byte] ^= bit;
        true
    }

    /// The allocated ports.
    pub fn taken(&self) -> impl Iterator<Item = u16> + '_ {
        (self.first..=self.last).filter(move |port| self.has(*port))
    }

    fn place(&self, port: u16) -> Option<(usize, u8)> {
        let nth = usize::from(port.checked_sub(self.first).filter(|_| port <= self.last)?);
        Some((nth / 8, 1 << (nth % 8)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: (u16, u16) = (30000, 32767);

    /// kube-apiserver 1.36 wrote this value, for a smaller range with the ports 30001, 30010 and 30015 allocated.
    const STORED: &[u8] =
        b"k8s\0\n\x15\n\x02v1\x12\x0fRangeAllocation\x12#\n\x10\n\0\x12\0\x1a\0\"\0*\x002\08\0B\0\x12\x0b\
        30000-30019\x1a\x02\x84\x02\x1a\0\"\0";

    #[test]
    fn the_bitmap_is_that_of_kube_apiserver() {
        let range = (30000, 30019);
        let mut ports = Ports::read("k", STORED, range).expect("a bitmap");
        assert_eq!(ports.taken().collect::<Vec<_>>(), [30001, 30010, 30015]);
        assert_eq!(
            ports.write("k", Media::Protobuf).expect("a value").escape_ascii().to_string(),
            STORED.escape_ascii().to_string()
        );
        assert!(ports.set(30019, true) && !ports.set(30019, true) && ports.set(30001, false));
        for media in [Media::Protobuf, Media::Json] {
            let value = ports.write("k", media).expect("a value");
            assert_eq!(Ports::read("k", &value, range).as_ref(), Ok(&ports));
        }
        assert_eq!(ports.taken().collect::<Vec<_>>(), [30010, 30015, 30019]);
    }

    #[test]
    fn ports_outside_of_the_range_are_never_given_out() {
        let mut ports = Ports::free(RANGE);
        for port in [0, 29999, 32768, 65535] {
            assert!(!ports.set(port, true) && !ports.has(port), "{port}");
        }
        assert!(ports.set(30000, true) && ports.set(32767, true));
        assert_eq!(ports.taken().collect::<Vec<_>>(), [30000, 32767]);
        assert_eq!(Ports::free((5, 5)).taken().count(), 0);
    }

    #[test]
    fn a_bitmap_of_another_range_or_of_none_is_refused() {
        let other = Ports::read("/k", STORED, RANGE).expect_err("another range").to_string();
        assert!(
            other.contains("for the node ports 30000-30019") && other.contains("--service-node-port-range"),
            "{other}"
        );
        let long = br#"{"apiVersion":"v1","kind":"RangeAllocation","range":"5-6","data":"AQEB"}"#;
        let fault = Ports::read("/k", long, (5, 6)).expect_err("too many").to_string();
        assert!(fault.contains("more ports than its range"), "{fault}");
        for value in [&b""[..], b"{}", br#"{"apiVersion":"v1","kind":"RangeAllocation","range":"5-6","data":"?"}"#] {
            assert!(Ports::read("/k", value, (5, 6)).is_err(), "{}", value.escape_ascii());
        }
    }
}
