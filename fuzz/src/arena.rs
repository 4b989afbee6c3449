//! Memory of an application, with guard bytes around every stretch that is registered.

use irnic_nic::{Mr, Nic};
use irnic_transports::qp::{Access, PdId};

/// Guard bytes before, between and after the areas.
const GUARD: usize = 512;

/// Length and rights of each area. The first grants everything.
const AREAS: [(usize, Access); Arena::AREAS] = [
    (16_384, Access(Access::ALL.0 | Access::FLUSH_GLOBAL.0)),
    (4096, Access(1)),
    // Peers may only read it: it never changes.
    (4096, Access(4)),
    // In another protection domain than every queue pair's: it never changes either.
    (4096, Access::ALL),
];

struct Area {
    start: usize,
    mr: Mr,
    registered: bool,
    /// What it must hold while nobody may write there.
    frozen: Option<Vec<u8>>,
}

/// The memory, and where it is registered.
pub struct Arena {
    words: *mut [u64],
    areas: Vec<Area>,
    pds: [PdId; 2],
}

fn guard(at: usize) -> u8 {
    (at as u8).wrapping_mul(29) ^ 0xa5
}

impl Arena {
    /// How many areas there are. The last is in the second protection domain.
    pub const AREAS: usize = 4;

    /// Allocates and registers everything. The arena must outlive the use of `nic`.
    pub fn new(nic: &mut Nic, pds: [PdId; 2]) -> Arena {
        let bytes: usize = GUARD + AREAS.iter().map(|(len, _)| len + GUARD).sum::<usize>();
        let words = Box::into_raw(vec![0u64; bytes / 8].into_boxed_slice());
        let mut arena = Arena { words, areas: Vec::new(), pds };
        for (at, byte) in arena.bytes_mut().iter_mut().enumerate() {
            *byte = guard(at);
        }
        let mut start = GUARD;
        for (index, &(len, access)) in AREAS.iter().enumerate() {
            let mr = arena.reg(nic, index, start);
            let constant = !access.allows(Access::LOCAL_WRITE) || index == Self::AREAS - 1;
            let frozen = constant.then(|| arena.bytes()[start..start + len].to_vec());
            arena.areas.push(Area { start, mr, registered: true, frozen });
            start += len + GUARD;
        }
        arena
    }

    fn reg(&self, nic: &mut Nic, index: usize, start: usize) -> Mr {
        let (len, access) = AREAS[index];
        let pd = self.pds[usize::from(index == Self::AREAS - 1)];
        // SAFETY: the area lies within the allocation, which lives as long as the arena.
        let at = unsafe { self.words.cast::<u8>().add(start) };
        // SAFETY: as above, for all of its length.
        unsafe { nic.reg_mr(pd, at, len as u64, at as u64, access) }.expect("room for a region")
    }

    /// The region of an area, gone or not.
    pub fn mr(&self, index: usize) -> Mr {
        self.areas[index].mr
    }

    /// Deregisters an area, or registers it anew with other keys.
    pub fn toggle(&mut self, nic: &mut Nic, index: usize) {
        let Area { start, mr, registered, .. } = self.areas[index];
        let constant = index >= 2;
        if registered {
            nic.dereg_mr(&mr).expect("a registered region");
            if !constant {
                let len = AREAS[index].0;
                self.areas[index].frozen = Some(self.bytes()[start..start + len].to_vec());
            }
        } else {
            self.areas[index].mr = self.reg(nic, index, start);
            if !constant {
                self.areas[index].frozen = None;
            }
        }
        self.areas[index].registered = !registered;
    }

    /// Nothing was written outside the areas, nor to those that nobody may write to.
    pub fn check(&self) {
        let bytes = self.bytes();
        let mut from = 0;
        for (area, (len, _)) in self.areas.iter().zip(AREAS) {
            assert!((from..area.start).all(|at| bytes[at] == guard(at)), "a guard byte changed before {:?}", area.mr);
            if let Some(frozen) = &area.frozen {
                assert!(bytes[area.start..area.start + len] == frozen[..], "{:?} changed", area.mr);
            }
            from = area.start + len;
        }
        assert!((from..bytes.len()).all(|at| bytes[at] == guard(at)), "a guard byte changed at the end");
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation is ours and of this length; the NIC writes only inside its own calls.
        unsafe { std::slice::from_raw_parts(self.words.cast(), self.words.len() * 8) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else looks.
        unsafe { std::slice::from_raw_parts_mut(self.words.cast(), self.words.len() * 8) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, dropped once; no NIC that knows the regions is called afterwards.
        drop(unsafe { Box::from_raw(self.words) });
    }
}
