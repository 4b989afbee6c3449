//! Buffers between an accelerator's memory and packets.
//!
//! A copy by a driver takes as long for a few bytes as for many kilobytes. So the bytes of a message are read ahead
//! when it begins, and those of packets in order are written together, at the latest with the last packet.

use irnic_transports::Payload;
use irnic_transports::qp::MemError;
use irnic_transports::wire::Mtu;

use super::accelerator::Accelerated;
use super::by_driver::Part;
use super::copy::copy_payload;
use super::regions::Regions;

/// Maximum length of one copy, bytes.
pub(super) const BATCH: usize = 256 << 10;

/// Number of messages that are read ahead at a time.
const MESSAGES: usize = 16;

/// A message of which one packet after the other is built.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// That of a scatter/gather list at this address.
    List(usize),
    /// The response of this queue pair.
    Response(u32),
}

/// Bytes of a message read before their packets are built.
#[derive(Debug)]
struct Ahead {
    message: Message,
    key: u32,
    /// Address of the next packet's bytes, which are those from `from` to `to` of `bytes` if any.
    next: u64,
    from: usize,
    to: usize,
    bytes: Vec<u8>,
    /// Value of the count of uses when it was used last.
    used: u64,
}

/// Bytes that are written later.
#[derive(Copy, Clone, Debug)]
struct Late {
    key: u32,
    addr: u64,
}

/// The buffers of a NIC.
#[derive(Debug)]
pub(super) struct Staging {
    /// Payload of the packet being built; the first `filled` bytes are in use.
    packet: Box<[u8]>,
    filled: usize,
    ahead: Vec<Ahead>,
    uses: u64,
    late: Option<Late>,
    /// The bytes of `late`.
    bytes: Vec<u8>,
    /// A payload that is not contiguous.
    joined: Vec<u8>,
}

impl Default for Staging {
    fn default() -> Staging {
        Staging {
            packet: vec![0; Mtu::B8192.bytes()].into(),
            filled: 0,
            ahead: Vec::new(),
            uses: 0,
            late: None,
            bytes: Vec::new(),
            joined: Vec::new(),
        }
    }
}

impl Staging {
    /// Begins a packet: the copies made for the last one are no longer needed.
    pub(super) fn begin(&mut self, table: &Regions) {
        self.filled = 0;
        self.flush(table);
    }

    /// Returns the address of the packet's copies.
    pub(super) fn start(&self) -> u64 {
        self.packet.as_ptr() as u64
    }

    /// Copies a part of a message to the packet; returns the position of the copy there. Parts of a message are read
    /// ahead if they come in order; `None` is a part by itself.
    pub(super) fn gather(
        &mut self,
        message: Option<Message>,
        (key, region): (u32, &Accelerated),
        part: &Part<'_>,
    ) -> Result<u64, MemError> {
        let end = self.filled + part.len as usize;
        let to = self.packet.get_mut(self.filled..end).ok_or(MemError::Copy(key))?;
        let ahead = message.is_some_and(|message| {
            self.uses += 1;
            let entry = Ahead::of(&mut self.ahead, message, key, part);
            entry.is_some_and(|entry| entry.take(self.uses, (key, region), part, to))
        });
        if !ahead {
            region.read(key, part.addr, to)?;
        }
        let position = self.filled as u64;
        self.filled = end;
        Ok(position)
    }

    /// Returns a payload's bytes in a buffer to be [given back](Self::put_back).
    pub(super) fn join(&mut self, payload: &Payload<'_>) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.joined);
        bytes.resize(payload.len(), 0);
        copy_payload(payload, &mut bytes);
        bytes
    }

    /// Takes a buffer back.
    pub(super) fn put_back(&mut self, bytes: Vec<u8>) {
        self.joined = bytes;
    }

    /// Writes bytes to an accelerator's memory, after all that were to be written late. `late`: they may be, too.
    pub(super) fn write(
        &mut self,
        table: &Regions,
        (key, region): (u32, &Accelerated),
        addr: u64,
        bytes: &[u8],
        late: bool,
    ) -> Result<(), MemError> {
        let end = |from: Late| from.addr.wrapping_add(self.bytes.len() as u64);
        let follows =
            self.late.is_some_and(|l| l.key == key && end(l) == addr) && self.bytes.len() + bytes.len() <= BATCH;
        if !follows {
            self.flush(table);
        }
        let waits = (follows || late) && self.bytes.try_reserve(bytes.len()).is_ok();
        if waits {
            self.late.get_or_insert(Late { key, addr });
            self.bytes.extend_from_slice(bytes);
        }
        if !(waits && late) {
            self.flush(table);
        }
        // What was written before it in this region may have failed, too.
        region.is_there(key)?;
        if waits { Ok(()) } else { region.write(key, addr, bytes) }
    }

    /// Writes what was to be written late. If that fails, the region is lost.
    #[cold]
    pub(super) fn flush(&mut self, table: &Regions) {
        let Some(Late { key, addr }) = self.late.take() else { return };
        // It may have been deregistered since.
        if let Some(region) = table.accelerated.get(key).filter(|r| r.covers(addr, self.bytes.len() as u64))
            && region.write(key, addr, &self.bytes).is_err()
        {
            region.lose();
        }
        self.bytes.clear();
    }
}

impl Ahead {
    /// Returns the entry for a part of a message; `None` if the part is read by itself.
    fn of<'a>(all: &'a mut Vec<Ahead>, message: Message, key: u32, part: &Part<'_>) -> Option<&'a mut Ahead> {
        if let Some(own) = all.iter().position(|a| (a.message, a.key) == (message, key)) {
            return Some(&mut all[own]);
        }
        // The rest of a message that was displaced, or a whole one.
        if part.before > 0 || part.rest == u64::from(part.len) {
            return None;
        }
        if all.len() < MESSAGES {
            all.push(Ahead { message, key, next: 0, from: 0, to: 0, bytes: Vec::new(), used: 0 });
            return all.last_mut();
        }
        let oldest = all.iter_mut().min_by_key(|a| a.used)?;
        (oldest.message, oldest.key) = (message, key);
        Some(oldest)
    }

    /// Fills `out` with a part of the message from what was read ahead, and reads ahead from the part on if that does
    /// not have it. Returns false if the part has to be read by itself.
    fn take(&mut self, uses: u64, (key, region): (u32, &Accelerated), part: &Part<'_>, out: &mut [u8]) -> bool {
        let begins = part.before == 0;
        if !begins && self.next != part.addr {
            // Out of order, such as a retransmission.
            return false;
        }
        self.used = uses;
        // The memory may have changed since the last message from here.
        if begins || self.to - self.from < out.len() {
            (self.from, self.to) = (0, 0);
            let ahead = part.rest.min(region.left(part.addr)).min(BATCH as u64) as usize;
            if ahead < out.len() || !self.grow(ahead) || region.read(key, part.addr, &mut self.bytes[..ahead]).is_err()
            {
                return false;
            }
            self.to = ahead;
        }
        out.copy_from_slice(&self.bytes[self.from..self.from + out.len()]);
        self.from += out.len();
        self.next = part.addr.wrapping_add(out.len() as u64);
        true
    }

    /// Makes room for `len` bytes. Returns false if there is no memory.
    fn grow(&mut self, len: usize) -> bool {
        let missing = len.saturating_sub(self.bytes.len());
        if self.bytes.try_reserve_exact(missing).is_err() {
            return false;
        }
        self.bytes.resize(len.max(self.bytes.len()), 0);
        true
    }
}
