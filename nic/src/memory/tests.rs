use std::collections::BTreeMap;

use irnic_transports::qp::{AtomicOp, MwBind, PdId, Sge, TxSlot};
use irnic_transports::wire::{Bth, Headers, Opcode, pad_for};
use irnic_transports::{Path, Payload, Psn, Segment, TxPacket};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::regions::FREE;
use super::*;
use crate::error::{NicError, Object, RegisterError};
use crate::frame::{emit_around, emit_frame, payload_in_place};

const PD: PdId = PdId(1);
const OTHER: PdId = PdId(2);
const LOCAL: Access = Access::LOCAL_WRITE;
const ALL: Access = Access::ALL;

fn by(pd: PdId) -> Caller {
    Caller { pd, qpn: 7 }
}

fn memory() -> Memory {
    Memory::new(1000, 8, [7; 32])
}

/// A memory with one region of `bytes`.
fn owned(bytes: &[u8], access: Access) -> (Memory, Mr) {
    let mut memory = memory();
    let mr = add(&mut memory, bytes, access);
    (memory, mr)
}

fn add(memory: &mut Memory, bytes: &[u8], access: Access) -> Mr {
    let mr = memory.register_owned(PD, bytes.len() as u64, access).unwrap();
    memory.owned_mut(&mr).unwrap().copy_from_slice(bytes);
    mr
}

fn sge(mr: &Mr, offset: u64, len: u32) -> Sge {
    Sge { addr: mr.addr.wrapping_add(offset), len, lkey: mr.lkey }
}

/// Returns the whole gather list of `sges`.
fn gather(memory: &Memory, sges: &[Sge], offset: u64, len: u32) -> Result<Vec<Segment>, MemError> {
    let mut list = GatherList::default();
    memory.table.gather_local(PD, sges, offset, len, &mut list)?;
    Ok(list.segments().to_vec())
}

fn bytes_of(segments: &[Segment]) -> Vec<u8> {
    // SAFETY: every caller's segments lie in regions of a memory that is alive.
    let gather = unsafe { Gather::new(segments) };
    let payload = Payload::Gather(gather);
    let mut bytes = vec![0xdd; payload.len()];
    copy_payload(&payload, &mut bytes);
    bytes
}

#[test]
fn bounds_hold_at_both_ends_and_around_the_address_space() {
    let mut memory = memory();
    let top = u64::MAX - 0xff;
    let low = memory.register_phantom(PD, 0x1000, 0x100, ALL).unwrap();
    let high = memory.register_phantom(PD, top, 0xff, ALL).unwrap();
    let empty = memory.register_phantom(PD, 0x5000, 0, ALL).unwrap();
    for (mr, addr, len, inside) in [
        (low, 0x1000, 0x100, true),
        (low, 0x1000, 0, true),
        (low, 0x10ff, 1, true),
        (low, 0x1100, 0, true),
        (low, 0xfff, 0, false),
        (low, 0xfff, 1, false),
        (low, 0xfff, 0x101, false),
        (low, 0x1000, 0x101, false),
        (low, 0x10ff, 2, false),
        (low, 0x1100, 1, false),
        (low, 0x1101, 0, false),
        (low, 0x1001, u64::MAX, false),
        (low, 0x1080, u64::MAX - 0x1080 + 1, false),
        (low, 0, 0x1100, false),
        (low, u64::MAX, 2, false),
        (high, top, 0xff, true),
        (high, u64::MAX - 1, 1, true),
        (high, u64::MAX, 0, true),
        (high, u64::MAX, 1, false),
        (high, top, 0x100, false),
        (high, top, u64::MAX, false),
        (high, 0, 0, false),
        (empty, 0x5000, 0, true),
        (empty, 0x5000, 1, false),
    ] {
        let expected = if inside { Ok(()) } else { Err(MemError::Bounds { key: mr.rkey, addr, len }) };
        assert_eq!(
            memory.check_remote(by(PD), mr.rkey, addr, len, Access::REMOTE_READ),
            expected,
            "{addr:#x} {len:#x}"
        );
        if let Ok(short) = u32::try_from(len)
            && short > 0
        {
            let found = gather(&memory, &[Sge { addr, len: short, lkey: mr.lkey }], 0, short);
            assert_eq!(found.is_ok(), inside, "{addr:#x} {len:#x}: {found:?}");
        }
    }
}

#[test]
fn a_range_around_the_end_of_the_address_space_is_no_region() {
    let mut memory = memory();
    for (addr, len) in [(u64::MAX, 1), (u64::MAX - 3, 4), (1, u64::MAX)] {
        assert_eq!(memory.register_phantom(PD, addr, len, ALL), Err(RegisterError::Range { addr, len }));
    }
    let len = Regions::MAX_OWNED + 1;
    assert_eq!(memory.register_owned(PD, len, ALL), Err(RegisterError::Range { addr: 0, len }));
    assert!(memory.register_phantom(PD, 0, u64::MAX, ALL).is_ok());
}

#[test]
fn remote_writes_and_atomics_are_granted_only_with_local_writes() {
    let mut memory = memory();
    for access in 0..16 {
        let refused = access & 0b1010 != 0 && access & 1 == 0;
        let expected = if refused { Err(RegisterError::Access) } else { Ok(()) };
        assert_eq!(memory.register_phantom(PD, 0, 8, Access(access)).map(|_| ()), expected, "{access}");
    }
}

#[test]
fn a_key_grants_what_it_was_registered_for_in_its_own_domain() {
    let payload = Payload::Bytes(&[1; 8]);
    for access in (0..16).map(Access).filter(|a| a.allows(LOCAL) || a.0 & 0b1010 == 0) {
        let (mut memory, mr) = owned(&[0; 16], access);
        let op = AtomicOp::FetchAdd { add: 1 };
        let place = [sge(&mr, 0, 16)];
        let mut list = GatherList::default();
        let attempts = [
            (LOCAL, mr.lkey, memory.place_local(PD, &place, 0, &payload)),
            (Access::REMOTE_WRITE, mr.rkey, memory.place_remote(by(PD), mr.rkey, mr.addr, 8, &payload)),
            (Access::REMOTE_READ, mr.rkey, memory.table.gather_remote(by(PD), mr.rkey, mr.addr, 8, &mut list)),
            (Access::REMOTE_ATOMIC, mr.rkey, memory.atomic(by(PD), mr.rkey, mr.addr, op).map(|_| ())),
        ];
        for (needed, key, result) in attempts {
            let expected = if access.allows(needed) { Ok(()) } else { Err(MemError::Rights { key, needed }) };
            assert_eq!(result, expected, "{access:?}");
        }
        // Reading for a local send needs no right.
        assert!(gather(&memory, &place, 0, 16).is_ok());

        let before = memory.owned(&mr).unwrap().to_vec();
        assert_eq!(memory.place_local(OTHER, &place, 0, &payload), Err(MemError::Domain(mr.lkey)));
        assert_eq!(memory.place_remote(by(OTHER), mr.rkey, mr.addr, 8, &payload), Err(MemError::Domain(mr.rkey)));
        assert_eq!(memory.gather_local(OTHER, &place, 0, 8, &mut list), Err(MemError::Domain(mr.lkey)));
        assert_eq!(
            memory.table.gather_remote(by(OTHER), mr.rkey, mr.addr, 8, &mut list),
            Err(MemError::Domain(mr.rkey))
        );
        assert_eq!(memory.atomic(by(OTHER), mr.rkey, mr.addr, op), Err(MemError::Domain(mr.rkey)));
        assert_eq!(memory.owned(&mr).unwrap(), before);
    }
}

#[test]
fn a_region_has_one_key() {
    let (memory, mr) = owned(&[0; 16], ALL);
    assert_eq!(mr.lkey, mr.rkey);
    assert_eq!(memory.check_remote(by(PD), 0, mr.addr, 1, Access(0)), Err(MemError::Key(0)));
}

#[test]
fn a_stale_local_key_is_not_taken_for_its_successor() {
    let mut memory = memory();
    let mut stale: Vec<Mr> = Vec::new();
    for _ in 0..200 {
        let mr = memory.register_phantom(PD, 0, 64, ALL).unwrap();
        for old in &stale {
            assert_ne!(old.lkey, mr.lkey);
            assert_eq!(gather(&memory, &[sge(old, 0, 1)], 0, 1), Err(MemError::Key(old.lkey)));
            assert_eq!(memory.deregister(old.lkey), Err(MemError::Key(old.lkey).into()));
        }
        memory.deregister(mr.lkey).unwrap();
        stale.push(mr);
    }
    assert_eq!(memory.regions.len(), 1, "the place is used again");
}

#[test]
fn no_key_is_ever_0() {
    let mut memory = Memory::new(1, 8, [7; 32]);
    for _ in 0..600 {
        let mr = add(&mut memory, &[1], Access(0));
        assert!(mr.lkey != 0 && mr.rkey != 0, "{mr:?}");
        assert!(gather(&memory, &[Sge { addr: mr.addr, len: 1, lkey: 0 }], 0, 1).is_err());
        memory.deregister(mr.lkey).unwrap();
    }
}

#[test]
fn a_region_keeps_its_keys_when_it_is_changed() {
    let mut memory = memory();
    let mr = add(&mut memory, &[1, 2, 3], Access(0));
    let changes = MrChanges { access: Some(Access::LOCAL_WRITE), ..MrChanges::default() };
    // SAFETY: no new range.
    let changed = unsafe { memory.reregister(&mr, &changes) }.unwrap();
    assert_eq!(changed, mr);
}

#[test]
fn a_full_device_refuses_until_a_region_goes() {
    let mut memory = Memory::new(3, 8, [0; 32]);
    let regions: Vec<Mr> = (0..3).map(|_| memory.register_phantom(PD, 0, 8, ALL).unwrap()).collect();
    assert_eq!(memory.register_phantom(PD, 0, 8, ALL), Err(RegisterError::Full(3)));
    assert!(memory.uses(PD) && !memory.uses(OTHER));
    memory.deregister(regions[1].lkey).unwrap();
    assert!(memory.register_phantom(OTHER, 0, 8, ALL).is_ok());
    assert!(memory.uses(OTHER));
    assert_eq!(memory.register_phantom(PD, 0, 8, ALL), Err(RegisterError::Full(3)));
}

#[test]
fn owned_memory_is_zeroed_and_shown_only_for_its_own_key() {
    let mut memory = memory();
    for len in [0, 1, 7, 8, 9, 4097] {
        let mr = memory.register_owned(PD, len, ALL).unwrap();
        assert_eq!(memory.owned(&mr).unwrap(), vec![0; len as usize]);
        assert_eq!(memory.owned_mut(&mr).unwrap().len() as u64, len);
        assert_eq!(memory.owned(&Mr { lkey: mr.lkey ^ 1, ..mr }), None);
        memory.deregister(mr.lkey).unwrap();
        assert_eq!(memory.owned(&mr), None);
        assert_eq!(memory.owned_mut(&mr), None);
    }
    let phantom = memory.register_phantom(PD, 0, 8, ALL).unwrap();
    assert_eq!(memory.owned(&phantom), None);
}

#[test]
fn remote_keys_are_found_through_any_churn_and_their_table_stays_small() {
    let mut memory = Memory::new(600, 8, [3; 32]);
    let mut live: BTreeMap<u32, Mr> = BTreeMap::new();
    let mut dead = Vec::new();
    let mut random = StdRng::seed_from_u64(11);
    for round in 0..30_000u64 {
        let grow = if round % 3000 < 1500 { 0.55 } else { 0.45 };
        if live.is_empty() || live.len() < 600 && random.random_bool(grow) {
            let mr = memory.register_phantom(PD, round << 12, 16, ALL).unwrap();
            assert!(mr.rkey != 0 && live.insert(mr.rkey, mr).is_none(), "remote keys are unique and not 0");
        } else {
            let nth = random.random_range(0..live.len());
            let mr = *live.values().nth(nth).unwrap();
            live.remove(&mr.rkey);
            memory.deregister(mr.lkey).unwrap();
            dead.push(mr.rkey);
        }
        if round % 500 == 0 {
            for mr in live.values() {
                assert_eq!(memory.check_remote(by(PD), mr.rkey, mr.addr, 16, ALL), Ok(()), "round {round}");
            }
            for key in dead.iter().filter(|k| !live.contains_key(k)) {
                assert_eq!(
                    memory.check_remote(by(PD), *key, 0, 0, Access(0)),
                    Err(MemError::Key(*key)),
                    "round {round}"
                );
            }
        }
    }
    assert!(memory.by_key.len() <= 8192, "{} slots for at most 600 keys", memory.by_key.len());
    assert!(memory.by_key.iter().any(|&(_, index)| index == FREE), "a search ends at a free slot");
}

#[test]
fn seeds_give_remote_keys_and_other_seeds_give_others() {
    let keys = |seed| {
        let mut memory = Memory::new(100, 8, [seed; 32]);
        (0..100).map(|_| memory.register_phantom(PD, 0, 1, ALL).unwrap().rkey).collect::<Vec<_>>()
    };
    assert_eq!(keys(1), keys(1));
    assert!(keys(1).iter().zip(keys(2)).all(|(a, b)| *a != b));
}

#[test]
fn a_regions_key_is_not_invalidated() {
    let (memory, mr) = owned(&[5; 16], ALL);
    assert_eq!(memory.invalidate(by(PD), mr.rkey), Err(MemError::Window("it is no window's key")));
    assert_eq!(memory.check_remote(by(PD), mr.rkey, mr.addr, 1, Access(0)), Ok(()));
    assert_eq!(memory.invalidate(by(PD), mr.rkey ^ 1), Err(MemError::Key(mr.rkey ^ 1)));
}

#[test]
fn elements_without_length_are_passed_over_whatever_they_name() {
    let (memory, mr) = owned(&[1, 2, 3, 4, 5, 6, 7, 8], ALL);
    let nothing = Sge { addr: 0xdead, len: 0, lkey: 0xbeef };
    let sges = [nothing, sge(&mr, 0, 2), nothing, nothing, sge(&mr, 4, 3), nothing];
    assert_eq!(bytes_of(&gather(&memory, &sges, 0, 5).unwrap()), [1, 2, 5, 6, 7]);
    assert_eq!(bytes_of(&gather(&memory, &sges, 2, 3).unwrap()), [5, 6, 7]);
    assert_eq!(gather(&memory, &sges, 5, 0).unwrap(), []);
    let long = gather(&memory, &sges, 0, 6);
    assert_eq!(long, Err(MemError::Bounds { key: nothing.lkey, addr: 0, len: 6 }));
    assert_eq!(gather(&memory, &[], 0, 1), Err(MemError::Bounds { key: 0, addr: 0, len: 1 }));
    assert_eq!(gather(&memory, &[], 0, 0), Ok(vec![]));
    // Elements before the offset are neither accessed nor checked.
    assert!(gather(&memory, &[Sge { len: 4, ..nothing }, sge(&mr, 0, 8)], 4, 8).is_ok());
    assert!(gather(&memory, &[Sge { len: 4, ..nothing }, sge(&mr, 0, 8)], 3, 8).is_err());
}

#[test]
fn an_element_whose_address_wraps_around_is_refused() {
    let (memory, mr) = owned(&[0; 64], ALL);
    let wraps = Sge { addr: u64::MAX - 7, len: 64, lkey: mr.lkey };
    for offset in [0, 7, 8, 9] {
        assert!(matches!(gather(&memory, &[wraps], offset, 1), Err(MemError::Bounds { .. })), "{offset}");
    }
}

#[test]
fn a_payload_is_placed_whole_or_not_at_all() {
    let mut memory = memory();
    let good = add(&mut memory, &[0; 16], ALL);
    let read_only = add(&mut memory, &[0; 16], Access::REMOTE_READ);
    let payload = Payload::Bytes(&[0xff; 24]);
    let unknown = Sge { lkey: 0x77_0000, ..sge(&good, 0, 16) };
    for (bad, error) in [
        (sge(&read_only, 0, 16), MemError::Rights { key: read_only.lkey, needed: LOCAL }),
        (sge(&good, 15, 16), MemError::Bounds { key: good.lkey, addr: good.addr + 15, len: 8 }),
        (unknown, MemError::Key(0x77_0000)),
        (sge(&good, 0, 7), MemError::Bounds { key: good.lkey, addr: 0, len: 24 }),
    ] {
        assert_eq!(memory.place_local(PD, &[sge(&good, 0, 16), bad], 0, &payload), Err(error));
        assert_eq!(memory.owned(&good).unwrap(), [0; 16]);
        assert_eq!(memory.owned(&read_only).unwrap(), [0; 16]);
    }
    assert!(memory.place_local(PD, &[sge(&good, 0, 16)], 0, &payload).is_err());
    assert!(memory.place_remote(by(PD), good.rkey, good.addr, 24, &payload).is_err());
    assert!(memory.place_remote(by(PD), good.rkey, good.addr + 1, 16, &Payload::Bytes(&[1; 16])).is_err());
    // A message longer than its part in this packet is checked in full.
    assert!(memory.place_remote(by(PD), good.rkey, good.addr, 17, &Payload::Bytes(&[1; 4])).is_err());
    assert_eq!(memory.owned(&good).unwrap(), [0; 16]);
    assert_eq!(memory.place_remote(by(PD), good.rkey, good.addr + 12, 4, &Payload::Bytes(&[1; 4])), Ok(()));
    assert_eq!(memory.owned(&good).unwrap()[11..], [0, 1, 1, 1, 1]);
}

#[test]
fn a_gather_list_is_placed_like_the_bytes_it_lists_even_onto_itself() {
    let source: Vec<u8> = (0..32).collect();
    let (mut memory, mr) = owned(&source, ALL);
    let to = add(&mut memory, &[0; 32], ALL);
    let segments = gather(&memory, &[sge(&mr, 1, 5), sge(&mr, 10, 3), sge(&mr, 20, 9)], 2, 13).unwrap();
    // SAFETY: the region is alive.
    let payload = Payload::Gather(unsafe { Gather::new(&segments) });
    let scatter = [sge(&to, 0, 4), sge(&to, 8, 0), sge(&to, 16, 16)];
    memory.place_local(PD, &scatter, 1, &payload).unwrap();
    let listed = [3, 4, 5, 10, 11, 12, 20, 21, 22, 23, 24, 25, 26];
    assert_eq!(memory.owned(&to).unwrap()[..4], [0, 3, 4, 5]);
    assert_eq!(memory.owned(&to).unwrap()[16..26], listed[3..]);

    // A queue pair connected to itself: source and destination overlap.
    let segments = gather(&memory, &[sge(&mr, 0, 24)], 0, 24).unwrap();
    // SAFETY: the region is alive.
    let payload = Payload::Gather(unsafe { Gather::new(&segments) });
    memory.place_remote(by(PD), mr.rkey, mr.addr + 4, 24, &payload).unwrap();
    assert_eq!(memory.owned(&mr).unwrap()[4..28], source[..24]);
}

#[test]
fn memory_without_bytes_reads_as_zeros_and_takes_anything() {
    let (mut memory, mr) = owned(&[7; 4], ALL);
    let phantom = memory.register_phantom(PD, 0x9000, 1 << 40, ALL).unwrap();
    let segments = gather(&memory, &[sge(&mr, 0, 4), sge(&phantom, 1 << 39, 3), sge(&mr, 0, 1)], 0, 8).unwrap();
    assert_eq!(bytes_of(&segments), [7, 7, 7, 7, 0, 0, 0, 7]);
    assert_eq!(memory.place_remote(by(PD), phantom.rkey, 0x9000, 4, &Payload::Bytes(&[1; 4])), Ok(()));
    assert_eq!(memory.atomic(by(PD), phantom.rkey, 0x9000, AtomicOp::FetchAdd { add: 1 }), Ok(0));
    // Zero bytes of a payload that has only a length, and bytes onto it.
    assert_eq!(memory.place_remote(by(PD), mr.rkey, mr.addr, 4, &Payload::Len(4)), Ok(()));
    assert_eq!(memory.owned(&mr).unwrap(), [7; 4]);
    assert!(memory.place_remote(by(PD), mr.rkey, mr.addr, 5, &Payload::Len(5)).is_err());
    let mut out = [9; 6];
    copy_payload(&Payload::Len(4), &mut out);
    assert_eq!(out, [0, 0, 0, 0, 9, 9]);
    copy_payload(&Payload::Bytes(&[1, 2]), &mut out);
    assert_eq!(out, [1, 2, 0, 0, 9, 9]);
    copy_payload(&Payload::EMPTY, &mut out);
    assert_eq!(out, [1, 2, 0, 0, 9, 9]);
}

#[test]
fn atomics_act_on_eight_aligned_bytes_inside() {
    let (memory, mr) = owned(&[0; 24], ALL);
    let at = |offset| mr.addr.wrapping_add(offset);
    let add = |offset, add| memory.table.atomic(by(PD), mr.rkey, at(offset), AtomicOp::FetchAdd { add });
    let swap = |offset, compare, swap| {
        memory.table.atomic(by(PD), mr.rkey, at(offset), AtomicOp::CompareSwap { compare, swap })
    };
    assert_eq!(add(16, 5), Ok(0));
    assert_eq!(add(16, u64::MAX), Ok(5), "addition wraps");
    assert_eq!(swap(16, 5, 9), Ok(4));
    assert_eq!(swap(16, 4, 9), Ok(4));
    assert_eq!(swap(16, 0, 0), Ok(9));
    for offset in [1, 4, 15] {
        assert_eq!(add(offset, 1), Err(MemError::Alignment(at(offset))));
    }
    for offset in [17, 24, 0u64.wrapping_sub(8)] {
        assert_eq!(add(offset, 1), Err(MemError::Bounds { key: mr.rkey, addr: at(offset), len: 8 }));
    }
    let words = memory.owned(&mr).unwrap();
    assert_eq!(words[..16], [0; 16]);
    assert_eq!(words[16..], 9u64.to_ne_bytes());
}

proptest! {
    /// Compares with a model: the elements' bytes one after the other.
    #[test]
    fn scatter_and_gather_agree_with_plain_bytes(
        seed: u64,
        parts in prop::collection::vec((0u64..200, prop_oneof![Just(0u32), 0u32..60]), 0..8),
        offset in 0u64..200,
        len in 0u32..200,
    ) {
        let mut source = vec![0; 256];
        StdRng::seed_from_u64(seed).fill_bytes(&mut source);
        let (mut memory, mr) = owned(&source, ALL);
        let sges: Vec<Sge> = parts.iter().map(|&(at, len)| sge(&mr, at, len)).collect();
        let all: Vec<usize> = parts.iter().flat_map(|&(at, len)| at as usize..at as usize + len as usize).collect();
        let wanted = all.get(offset as usize..).and_then(|rest| rest.get(..len as usize));
        // Elements beyond the region are an error as soon as one of their bytes is wanted.
        let inside = len == 0 || wanted.is_some_and(|w| w.iter().all(|&at| at < 256));

        let gathered = gather(&memory, &sges, offset, len);
        prop_assert_eq!(gathered.is_ok(), inside, "{:?}", gathered);
        if let (Ok(segments), Some(wanted)) = (&gathered, wanted) {
            let expected: Vec<u8> = wanted.iter().map(|&at| source[at]).collect();
            prop_assert_eq!(bytes_of(segments), expected);
        }

        let payload: Vec<u8> = (0..len).map(|n| n as u8 ^ 0xa5).collect();
        let placed = memory.place_local(PD, &sges, offset, &Payload::Bytes(&payload));
        prop_assert_eq!(placed.is_ok(), inside);
        let mut expected = source;
        if inside && len > 0 {
            for (&at, &byte) in wanted.unwrap().iter().zip(&payload) {
                expected[at] = byte;
            }
        }
        prop_assert_eq!(memory.owned_mut(&mr).unwrap(), &expected[..]);
    }
}

#[test]
fn what_is_read_again_comes_from_the_reader_or_is_refused() {
    fn reader(addr: u64, to: &mut [u8]) -> bool {
        to.fill(addr as u8);
        !addr.is_multiple_of(2)
    }
    let mut memory = memory();
    // SAFETY: nothing but the reader reads or writes it, and the reader does not either.
    let mr = unsafe { memory.register_external(PD, 0x1000 as *mut u8, 64, 0x1000, Access::REMOTE_READ) }.unwrap();
    let mut list = GatherList::default();
    memory.gather_again(by(PD), mr.rkey, 0x1004, 8, &mut list).unwrap();
    assert_eq!(list.segments()[0].addr, 0x1004, "without a reader it lies where it lies");
    memory.set_reader(reader);
    list.clear();
    memory.gather_again(by(PD), mr.rkey, 0x1005, 8, &mut list).unwrap();
    // SAFETY: the list is of the table's own memory, which lives.
    assert_eq!(unsafe { std::slice::from_raw_parts(list.segments()[0].addr as *const u8, 8) }, [5; 8]);
    assert_eq!(memory.gather_again(by(PD), mr.rkey, 0x1004, 8, &mut list), Err(MemError::Key(mr.rkey)));
    assert!(memory.gather_again(by(PD), mr.rkey ^ 1, 0x1005, 8, &mut list).is_err());
}

#[test]
fn nics_that_share_memory_know_each_others_regions_windows_and_domains() {
    use crate::nic::{Nic, NicConfig};
    let mut first = Nic::new(NicConfig::default());
    let mut second = Nic::new(NicConfig { first_qpn: 0x4000, ..NicConfig::default() });
    // SAFETY: one thread has both.
    unsafe { second.share_memory(&first) };
    let pd = first.alloc_pd().unwrap();
    let mr = second.alloc_mr(pd, 64, Access(ALL.0 | Access::MW_BIND.0)).unwrap();
    let (reads, caller) = (Access::REMOTE_READ, by(pd));
    assert!(first.device.memory.check_remote(caller, mr.rkey, mr.addr, 64, reads).is_ok());
    assert_eq!(first.bytes(&mr).map(<[u8]>::as_ptr), second.bytes(&mr).map(<[u8]>::as_ptr));
    // A window bound through one NIC holds the region in both, and opens it in both.
    let mw = first.alloc_mw(pd, MwKind::Type1).unwrap();
    let rkey = second.next_mw_rkey(mw.handle).unwrap();
    let bind = MwBind { mw: mw.handle, rkey, lkey: mr.lkey, addr: mr.addr, len: 8, access: reads };
    second.device.memory.bind_window(caller, &bind).unwrap();
    assert!(first.device.memory.check_remote(caller, rkey, mr.addr, 8, reads).is_ok());
    assert_eq!(first.dereg_mr(&mr), Err(NicError::InUse(Object::MemoryRegion)));
    first.dealloc_mw(mw.handle).unwrap();
    assert!(second.device.memory.check_remote(caller, rkey, mr.addr, 8, reads).is_err());
    first.dereg_mr(&mr).unwrap();
    assert!(second.bytes(&mr).is_none());
    // A domain is in use if either NIC's queues use it.
    let srq = second.create_srq(pd, 1, 1).unwrap();
    assert_eq!(first.dealloc_pd(pd), Err(NicError::InUse(Object::ProtectionDomain)));
    second.destroy_srq(srq).unwrap();
    first.dealloc_pd(pd).unwrap();
    assert_eq!(second.alloc_mr(pd, 64, ALL), Err(NicError::NotFound(Object::ProtectionDomain)));
}

#[test]
fn a_frame_around_its_payload_is_the_frame_without_it() {
    let memory: Vec<u8> = (0..=255).cycle().take(4096).collect();
    let wire =
        Path { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into(), udp_src: 0xc000, traffic_class: 2, hop_limit: 64 };
    for (first, second) in [(4096, 0), (1, 0), (2, 3), (1000, 27), (64, 64), (0, 7)] {
        let at = |offset: usize, len: usize| Segment { addr: memory[offset..].as_ptr() as u64, len: len as u32 };
        let segments = [at(0, first), at(first, second)];
        // SAFETY: the memory is there to the end of the test.
        let gather = unsafe { Gather::new(&segments) };
        let mut headers = Headers::new(Bth::new(Opcode::RcSendOnly, 7, Psn::new(9)));
        headers.bth.pad = pad_for(first + second);
        let mut slot = TxSlot { headers, ..TxSlot::default() };
        for stable in [false, true] {
            slot.gather.stable = stable;
            let payload = Payload::Gather(gather.with_stable(stable));
            let sideband = slot.sideband(1);
            let packet = TxPacket { headers: &slot.headers, path: &wire, payload, timestamp: 0, sideband };
            assert_eq!(payload_in_place(&packet.payload).is_some(), stable);
            let mut whole = vec![0xaa; packet.headers.frame_len(first + second)];
            let mut around = whole.clone();
            emit_frame(&packet, Some(&wire), &mut whole);
            emit_around(&packet, &gather, Some(&wire), &mut around);
            let place = slot.headers.len()..slot.headers.len() + first + second;
            assert!(around[place.clone()].iter().all(|byte| *byte == 0xaa));
            around[place.clone()].copy_from_slice(&memory[..place.len()]);
            assert_eq!(around, whole, "{first} and {second} bytes");
        }
    }
}
