//! Reader of pcap and pcapng files, one packet at a time, which reports the position of errors.

use std::io::{self, Read};

use pcap_file::pcap::PcapParser;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgParser};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use thiserror::Error;

/// Link layer of a captured packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Ethernet II.
    Ethernet,
    /// IPv4 or IPv6.
    Ip,
    /// Linux cooked capture, as written by older versions of `tcpdump -i any`.
    Sll,
    /// Linux cooked capture, version 2.
    Sll2,
    /// Anything else, by its number in the tcpdump registry.
    Other(u32),
}

impl From<DataLink> for Link {
    fn from(link: DataLink) -> Link {
        match link {
            DataLink::ETHERNET => Link::Ethernet,
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Link::Ip,
            DataLink::LINUX_SLL => Link::Sll,
            DataLink::LINUX_SLL2 => Link::Sll2,
            other => match u32::from(other) {
                12 | 14 => Link::Ip, // raw IP under its number on the BSDs
                number => Link::Other(number),
            },
        }
    }
}

/// One captured packet.
#[derive(Copy, Clone, Debug)]
pub struct Packet<'a> {
    /// Number, counted from 1 as in Wireshark.
    pub number: u64,
    /// Nanoseconds since the capturing machine's epoch.
    pub time: i128,
    /// Link layer of `data`.
    pub link: Link,
    /// Captured bytes.
    pub data: &'a [u8],
    /// Original length of the packet, bytes.
    pub original_len: usize,
}

/// An error that prevents reading further packets.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The file has the magic number of neither format.
    #[error("not a pcap or pcapng file: {0}")]
    NotACapture(String),
    /// The file is truncated inside a packet, or inside its header (then `packet` is 1).
    #[error("the file is cut short: it ends at byte {end}, inside packet {packet} that begins at byte {offset}")]
    CutShort {
        /// Number of the incomplete packet.
        packet: u64,
        /// Offset of its start.
        offset: u64,
        /// Length of the file, bytes.
        end: u64,
    },
    /// The following data is no packet.
    #[error("the file is damaged: packet {packet} at byte {offset}: {what}")]
    Damaged {
        /// Number of the expected packet.
        packet: u64,
        /// Offset of its start.
        offset: u64,
        /// What was wrong.
        what: String,
    },
    /// Error of the operating system.
    #[error("cannot read: {0}")]
    Io(#[from] io::Error),
}

/// Upper limit on the size of a packet or block, bytes.
const MAX_RECORD: usize = 16 << 20;

/// Maximum size of a read, bytes.
const CHUNK: usize = 256 << 10;

enum Format {
    Pcap(PcapParser),
    PcapNg(PcapNgParser),
}

/// A capture being read.
pub struct CaptureFile<R> {
    window: Window<R>,
    format: Format,
    packets: u64,
    data: Vec<u8>,
}

/// Metadata of a packet.
struct Meta {
    time: i128,
    link: Link,
    original_len: usize,
}

impl<R: Read> CaptureFile<R> {
    /// Reads the file's header.
    pub fn open(input: R) -> Result<CaptureFile<R>, CaptureError> {
        let mut window = Window { input, bytes: Vec::new(), start: 0, offset: 0 };
        while window.rest().len() < 4 && window.fill()? {}
        let magic = match *window.rest() {
            [] => return Err(CaptureError::NotACapture("it is empty".into())),
            [a, b, c, d, ..] => [a, b, c, d],
            _ => return Err(CaptureError::NotACapture(format!("it has {} bytes", window.rest().len()))),
        };
        let format = match magic {
            [0xa1, 0xb2, 0xc3, 0xd4]
            | [0xd4, 0xc3, 0xb2, 0xa1]
            | [0xa1, 0xb2, 0x3c, 0x4d]
            | [0x4d, 0x3c, 0xb2, 0xa1] => Format::Pcap(window.parse(1, PcapParser::new)?),
            [0x0a, 0x0d, 0x0d, 0x0a] => Format::PcapNg(window.parse(1, PcapNgParser::new)?),
            _ => {
                let [a, b, c, d] = magic;
                return Err(CaptureError::NotACapture(format!("it begins with {a:02x} {b:02x} {c:02x} {d:02x}")));
            }
        };
        Ok(CaptureFile { window, format, packets: 0, data: Vec::new() })
    }

    /// The next packet, `None` at the end of the file.
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>, CaptureError> {
        let CaptureFile { window, format, packets, data } = self;
        let number = *packets + 1;
        let meta = loop {
            if window.rest().is_empty() && !window.fill()? {
                return Ok(None);
            }
            let offset = window.offset;
            let found = match format {
                Format::Pcap(parser) => Some(pcap_packet(window, parser, number, data)?),
                Format::PcapNg(parser) => pcapng_packet(window, parser, number, data)?,
            };
            match found {
                Some(Ok(meta)) => break meta,
                Some(Err(what)) => return Err(CaptureError::Damaged { packet: number, offset, what }),
                None => {}
            }
        };
        self.packets = number;
        let Meta { time, link, original_len } = meta;
        Ok(Some(Packet { number, time, link, data: &self.data, original_len }))
    }
}

/// Reads a classic pcap record. The inner `Err` says what is wrong with it.
fn pcap_packet<R: Read>(
    window: &mut Window<R>,
    parser: &PcapParser,
    number: u64,
    data: &mut Vec<u8>,
) -> Result<Result<Meta, String>, CaptureError> {
    let header = parser.header();
    let unit = if header.ts_resolution == TsResolution::MicroSecond { 1_000 } else { 1 };
    window.parse(number, |bytes| {
        let (rest, raw) = parser.next_raw_packet(bytes)?;
        data.clear();
        data.extend_from_slice(&raw.data);
        let meta = if raw.incl_len > raw.orig_len {
            Err(format!("{} bytes captured of {}", raw.incl_len, raw.orig_len))
        } else {
            Ok(Meta {
                time: i128::from(raw.ts_sec) * 1_000_000_000 + i128::from(raw.ts_frac) * unit,
                link: header.datalink.into(),
                original_len: raw.orig_len as usize,
            })
        };
        Ok((rest, meta))
    })
}

/// Reads one pcapng block; `None` if it contains no packet.
fn pcapng_packet<R: Read>(
    window: &mut Window<R>,
    parser: &mut PcapNgParser,
    number: u64,
    data: &mut Vec<u8>,
) -> Result<Option<Result<Meta, String>>, CaptureError> {
    let block = window.parse(number, |bytes| {
        let (rest, block) = parser.next_block(bytes)?;
        let found = match block {
            Block::EnhancedPacket(p) => {
                // The parser takes ticks for nanoseconds; the interface defines their length.
                Some((p.interface_id, p.timestamp.as_nanos() as u64, p.original_len, p.data))
            }
            Block::Packet(p) => {
                // Two words, the upper one first in either byte order.
                let little = parser.section().endianness == Endianness::Little;
                let ticks = if little { p.timestamp.rotate_left(32) } else { p.timestamp };
                Some((p.interface_id.into(), ticks, p.original_len, p.data))
            }
            Block::SimplePacket(p) => Some((0, 0, p.original_len, p.data)),
            _ => None,
        };
        let found = found.map(|(interface, ticks, original_len, bytes)| {
            data.clear();
            data.extend_from_slice(&bytes);
            data.truncate(original_len as usize); // a simple packet block does not say where its padding begins
            (interface, ticks, original_len as usize)
        });
        Ok((rest, found))
    })?;
    Ok(block.map(|(id, ticks, original_len)| match parser.interfaces().get(id as usize) {
        Some(interface) => {
            Ok(Meta { time: nanoseconds(interface, ticks), link: interface.linktype.into(), original_len })
        }
        None => Err(format!("it is from interface {id}, which the file does not describe")),
    }))
}

/// A timestamp in the interface's resolution (microseconds unless it says otherwise) and offset.
fn nanoseconds(interface: &InterfaceDescriptionBlock<'_>, ticks: u64) -> i128 {
    let mut per_second = 1_000_000_u128;
    let mut offset = 0;
    for option in &interface.options {
        match *option {
            InterfaceDescriptionOption::IfTsResol(r) => {
                let base: u128 = if r & 0x80 == 0 { 10 } else { 2 };
                per_second = base.checked_pow(u32::from(r & 0x7f)).unwrap_or(u128::MAX);
            }
            InterfaceDescriptionOption::IfTsOffset(seconds) => offset = seconds as i64,
            _ => {}
        }
    }
    let since = u128::from(ticks) * 1_000_000_000 / per_second;
    since as i128 + i128::from(offset) * 1_000_000_000
}

/// The part of the file in memory.
struct Window<R> {
    input: R,
    bytes: Vec<u8>,
    /// Start of the unread part in `bytes`.
    start: usize,
    /// File offset of that.
    offset: u64,
}

impl<R: Read> Window<R> {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Reads more; false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        self.bytes.drain(..self.start);
        self.start = 0;
        let held = self.bytes.len();
        self.bytes.resize(held + CHUNK, 0);
        let n = loop {
            match self.input.read(&mut self.bytes[held..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        self.bytes.truncate(held + n.as_ref().copied().unwrap_or(0));
        Ok(n? > 0)
    }

    /// Applies a parser that returns the remaining input, and reads more of the file as long as the parser asks for it.
    fn parse<T>(
        &mut self,
        packet: u64,
        mut parser: impl for<'a> FnMut(&'a [u8]) -> Result<(&'a [u8], T), PcapError>,
    ) -> Result<T, CaptureError> {
        loop {
            let rest = &self.bytes[self.start..];
            let offset = self.offset;
            match parser(rest) {
                Ok((left, value)) => {
                    let used = rest.len() - left.len();
                    self.start += used;
                    self.offset += used as u64;
                    return Ok(value);
                }
                Err(PcapError::IncompleteBuffer) if rest.len() > MAX_RECORD => {
                    let what = format!("it would be longer than {MAX_RECORD} bytes");
                    return Err(CaptureError::Damaged { packet, offset, what });
                }
                Err(PcapError::IncompleteBuffer) => {
                    if !self.fill()? {
                        let end = offset + self.rest().len() as u64;
                        return Err(CaptureError::CutShort { packet, offset, end });
                    }
                }
                Err(e) => return Err(CaptureError::Damaged { packet, offset, what: e.to_string() }),
            }
        }
    }
}
