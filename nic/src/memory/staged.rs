//! Access to memory by queue pairs: directly, or by the driver of an accelerator where no other region has the key.

use irnic_transports::qp::{Access, AtomicOp, Caller, GatherList, MemError, PdId, Sge};
use irnic_transports::{Gather, Payload, Piece};

use super::Memory;
use super::accelerator::Accelerated;
use super::by_driver::Part;
use super::copy::{copy_in, copy_payload};
use super::regions::needed;
use super::staging::{Message, Staging};

impl Memory {
    /// Lists the memory under `sges`, or copies of it.
    #[inline]
    pub(crate) fn gather_local(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        len: u32,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        match self.table.gather_local(pd, sges, offset, len, out) {
            Err(error) => {
                let message = Some(Message::List(sges.as_ptr() as usize));
                self.gather_local_copy(error, pd, (sges, offset, len), message, out)
            }
            listed => listed,
        }
    }

    /// Copies the beginning of the memory under `sges`, for the length of `to`.
    pub(crate) fn read_local(&mut self, pd: PdId, sges: &[Sge], to: &mut [u8]) -> Result<(), MemError> {
        let (mut list, len) = (GatherList::default(), to.len() as u32);
        self.table
            .gather_local(pd, sges, 0, len, &mut list)
            .or_else(|error| self.gather_local_copy(error, pd, (sges, 0, len), None, &mut list))?;
        // SAFETY: each segment belongs to a region of this table, or is a copy made here, and both are borrowed.
        copy_payload(&Payload::Gather(unsafe { Gather::new(list.segments()) }), to);
        Ok(())
    }

    /// Lists remotely readable memory, or a copy of it.
    #[inline]
    pub(crate) fn gather_remote(
        &mut self,
        by: Caller,
        rkey: u32,
        va: u64,
        piece: Piece,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        match self.table.gather_remote(by, rkey, va, piece.len, out) {
            Err(error) => self.gather_remote_copy(error, by, rkey, va, piece.len, Some(piece), out),
            listed => listed,
        }
    }

    /// Copies a payload to the memory under `sges`. All or nothing, unless a driver fails.
    #[inline]
    pub(crate) fn place_local(
        &mut self,
        pd: PdId,
        sges: &[Sge],
        offset: u64,
        payload: &Payload<'_>,
    ) -> Result<(), MemError> {
        match self.table.place_local(pd, sges, offset, payload) {
            Err(error) => self.place_local_copy(error, pd, (sges, offset), payload),
            placed => placed,
        }
    }

    /// Copies a payload to remotely writable memory.
    #[inline]
    pub(crate) fn place_remote(
        &mut self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u64,
        payload: &Payload<'_>,
    ) -> Result<(), MemError> {
        match self.table.place_remote(by, rkey, va, len, payload) {
            Err(error) => self.place_remote_copy(error, by, rkey, (va, len), payload),
            placed => placed,
        }
    }

    /// Checks a remote range without accessing it.
    #[inline]
    pub(crate) fn check_remote(
        &self,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u64,
        needed: Access,
    ) -> Result<(), MemError> {
        match self.table.check_remote(by, rkey, va, len, needed) {
            Err(error) => self.accelerated(error, rkey)?.check(rkey, by.pd, va, len, needed).map(|_| ()),
            checked => checked,
        }
    }

    /// Checks a right that does not depend on the range.
    pub(crate) fn check_key(&self, by: Caller, rkey: u32, needed: Access) -> Result<(), MemError> {
        let checked = self.table.check_key(by, rkey, needed);
        checked.or_else(|error| {
            let region = self.accelerated(error, rkey)?;
            region.check(rkey, by.pd, region.region.addr, 0, needed).map(|_| ())
        })
    }

    /// Executes an atomic; returns the previous value.
    pub(crate) fn atomic(&mut self, by: Caller, rkey: u32, va: u64, op: AtomicOp) -> Result<u64, MemError> {
        match self.table.atomic(by, rkey, va, op) {
            Err(error) => {
                self.accelerated(error, rkey)?.check(rkey, by.pd, va, 8, needed(op))?;
                self.settle();
                let region = self.accelerated(error, rkey)?;
                self.table.atomic_by_copies(by.pd, (rkey, region), va, op)
            }
            done => done,
        }
    }

    /// Returns the region of an accelerator with a key, or the error of the search among the others.
    #[cold]
    fn accelerated(&self, error: MemError, key: u32) -> Result<&Accelerated, MemError> {
        match error {
            MemError::Key(_) => self.table.accelerated.get(key).ok_or(error),
            _ => Err(error),
        }
    }

    /// Returns whether an error may be due to an accelerator's region in the list.
    #[cold]
    fn may_be_accelerated(&self, error: MemError) -> bool {
        matches!(error, MemError::Key(_)) && !self.table.accelerated.is_empty()
    }

    #[cold]
    #[inline(never)]
    fn gather_local_copy(
        &mut self,
        error: MemError,
        pd: PdId,
        (sges, offset, len): (&[Sge], u64, u32),
        message: Option<Message>,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        out.clear();
        if !self.may_be_accelerated(error) {
            return Err(error);
        }
        let (table, staging) = (&*self.table, self.staging.get_or_insert_default());
        staging.begin(table);
        // Segments that are copies, by bits; they get their addresses when none is written any more.
        let mut copies = 0u32;
        let listed = table.walk_parts(pd, sges, offset, len.into(), Access(0), |part| {
            let addr = match part.region {
                None => part.addr,
                Some(region) => {
                    copies |= 1 << out.count;
                    staging.gather(message, region, &part)?
                }
            };
            out.push(addr, part.len);
            Ok(())
        });
        if listed.is_err() {
            out.clear();
        }
        let start = staging.start();
        let of_copies = out.segments[..out.count].iter_mut().enumerate().filter(|(i, _)| copies >> i & 1 != 0);
        of_copies.for_each(|(_, segment)| segment.addr += start);
        listed
    }

    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "a request and the error of its first attempt")]
    pub(super) fn gather_remote_copy(
        &mut self,
        error: MemError,
        by: Caller,
        rkey: u32,
        va: u64,
        len: u32,
        piece: Option<Piece>,
        out: &mut GatherList,
    ) -> Result<(), MemError> {
        let addr = self.accelerated(error, rkey)?.check(rkey, by.pd, va, len.into(), Access::REMOTE_READ)?;
        let (table, staging) = (&*self.table, self.staging.get_or_insert_default());
        staging.begin(table);
        let Some(region) = table.accelerated.get(rkey) else { return Err(error) };
        // Bytes written late may have failed.
        region.is_there(rkey)?;
        let Piece { of, at, .. } = piece.unwrap_or_default();
        let part = Part { region: None, addr, len, before: at.into(), rest: u64::from(of.saturating_sub(at).max(len)) };
        let message = piece.map(|_| Message::Response(by.qpn));
        out.stable = false;
        let offset = staging.gather(message, (rkey, region), &part)?;
        out.push(staging.start() + offset, len);
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn place_local_copy(
        &mut self,
        error: MemError,
        pd: PdId,
        (sges, offset): (&[Sge], u64),
        payload: &Payload<'_>,
    ) -> Result<(), MemError> {
        if !self.may_be_accelerated(error) {
            return Err(error);
        }
        let len = payload.len() as u64;
        self.table.walk_parts(pd, sges, offset, len, Access::LOCAL_WRITE, |_| Ok(()))?;
        // Of a list with several regions, the last packet may reach another one than was written late.
        let late = self.late && sges.len() == 1;
        let (table, staging) = (&*self.table, self.staging.get_or_insert_default());
        with_bytes(staging, payload, |staging, bytes| {
            let mut done = 0;
            table.walk_parts(pd, sges, offset, len, Access::LOCAL_WRITE, |part| {
                let end = done + part.len as usize;
                match part.region {
                    Some(region) => staging.write(table, region, part.addr, &bytes[done..end], late)?,
                    // SAFETY: the range lies in a live region with write access, and has the same length.
                    None => unsafe { copy_in(&Payload::Bytes(bytes), done, part.addr, part.len as usize) },
                }
                done = end;
                Ok(())
            })
        })
    }

    #[cold]
    #[inline(never)]
    fn place_remote_copy(
        &mut self,
        error: MemError,
        by: Caller,
        rkey: u32,
        (va, len): (u64, u64),
        payload: &Payload<'_>,
    ) -> Result<(), MemError> {
        let len = len.max(payload.len() as u64);
        let addr = self.accelerated(error, rkey)?.check(rkey, by.pd, va, len, Access::REMOTE_WRITE)?;
        let late = self.late;
        let (table, staging) = (&*self.table, self.staging.get_or_insert_default());
        let Some(region) = table.accelerated.get(rkey) else { return Err(error) };
        with_bytes(staging, payload, |staging, bytes| staging.write(table, (rkey, region), addr, bytes, late))
    }
}

/// Calls `place` with a payload's bytes; one without bytes places nothing.
fn with_bytes(
    staging: &mut Staging,
    payload: &Payload<'_>,
    place: impl FnOnce(&mut Staging, &[u8]) -> Result<(), MemError>,
) -> Result<(), MemError> {
    match payload {
        Payload::Len(_) => Ok(()),
        Payload::Bytes(bytes) => place(staging, bytes),
        Payload::Gather(_) => {
            let bytes = staging.join(payload);
            let placed = place(staging, &bytes);
            staging.put_back(bytes);
            placed
        }
    }
}
