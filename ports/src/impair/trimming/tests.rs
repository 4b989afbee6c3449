use proptest::prelude::*;

use super::*;

/// A frame of `bytes`, of which 10 are left when it is trimmed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Item {
    tag: usize,
    bytes: u32,
    kind: Kind,
    damaged: bool,
}

const HEADER: u32 = 10;

impl Load for Item {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn trim(&mut self) -> bool {
        assert_eq!(self.kind, Kind::Trimmable);
        if !self.damaged {
            (self.bytes, self.kind) = (HEADER, Kind::Trimmed);
        }
        !self.damaged
    }
}

fn item(tag: usize, bytes: u32, kind: Kind) -> Item {
    Item { tag, bytes, kind, damaged: false }
}

fn data(tag: usize) -> Item {
    item(tag, 100, Kind::Trimmable)
}

fn header(tag: usize) -> Item {
    item(tag, HEADER, Kind::Headers)
}

/// A byte a nanosecond.
fn line(trim: Trim, seed: u64) -> Trimming<Item> {
    Trimming::new(Rate { bits: 8_000_000_000, overhead: 0 }, &trim, seed)
}

fn rooms(packets: u32, headers: u64) -> Trim {
    Trim { headers, ..Trim::new(Room::Packets(packets)) }
}

/// Removes what has left the line by `now`; returns times and tags.
fn drain(line: &mut Trimming<Item>, now: u64) -> Vec<(u64, usize)> {
    let mut left = Vec::new();
    while let Some((at, frame)) = line.due(Time(now)) {
        left.push((at.0, frame.tag));
        line.drop_first();
    }
    left
}

/// Admits frames at time 0. Returns what was refused.
fn admit(line: &mut Trimming<Item>, frames: impl IntoIterator<Item = Item>) -> (Counters, Vec<Refused<Item>>) {
    let mut counters = Counters::default();
    let refused = frames.into_iter().filter_map(|frame| line.admit(Time::ZERO, frame, &mut counters)).collect();
    (counters, refused)
}

#[test]
fn the_frame_on_the_line_takes_room_until_it_has_left() {
    for (room, fits) in [(Room::Packets(8), 8), (Room::Bytes(800), 8), (Room::Bytes(799), 7), (Room::Packets(1), 1)] {
        let mut line = line(Trim { headers: 1000, ..Trim::new(room) }, 1);
        let (counters, refused) = admit(&mut line, (0..20).map(data));
        assert_eq!((counters.trimmed, refused.len()), (20 - fits, 0), "{room:?}");
        assert_eq!(drain(&mut line, 99), []);
        // Still on the line.
        assert_eq!(admit(&mut line, [data(20)]).0.trimmed, 1);
        assert_eq!(drain(&mut line, 100).len(), 1);
        let mut counters = Counters::default();
        line.admit(Time(100), data(21), &mut counters);
        assert_eq!(counters.trimmed, 0, "{room:?}");
    }
}

#[test]
fn ten_headers_go_for_each_frame_with_payload_while_both_wait() {
    let mut line = line(rooms(8, 1000), 1);
    let (_, refused) = admit(&mut line, (0..4).map(data).chain((100..130).map(header)));
    assert_eq!(refused, []);
    let kinds: Vec<bool> = drain(&mut line, 10_000).into_iter().map(|(_, tag)| tag < 100).collect();
    // The first was on the line when the headers came; then tens and ones, and what is left.
    let expected = [1, 10, 1, 10, 1, 10, 1].iter().zip([true, false].into_iter().cycle());
    assert_eq!(kinds, expected.flat_map(|(count, is_data)| vec![is_data; *count]).collect::<Vec<_>>());
}

#[test]
fn an_idle_header_queue_earns_nothing_and_neither_do_headers_alone() {
    let mut line = line(rooms(8, 1000), 1);
    admit(&mut line, (100..120).map(header));
    // Twenty headers in a row, and no debt of them.
    assert_eq!(drain(&mut line, 200).len(), 20);
    let mut counters = Counters::default();
    for frame in [data(0), data(1), header(200), header(201)] {
        line.admit(Time(200), frame, &mut counters);
    }
    let tags: Vec<usize> = drain(&mut line, 1000).into_iter().map(|(_, tag)| tag).collect();
    assert_eq!(tags, [0, 200, 201, 1]);
}

#[test]
fn a_coin_chooses_between_the_arriving_frame_and_the_last_that_waits() {
    const FRAMES: usize = 2_000;
    let mut line = line(rooms(4, 1 << 20), 7);
    let (counters, _) = admit(&mut line, (0..FRAMES).map(data));
    assert_eq!(counters.trimmed, FRAMES as u64 - 4);
    let whole: Vec<usize> = line.data.frames.iter().map(|frame| frame.tag).collect();
    // The first is on the line; the first two that wait are safe, the last place has changed hands.
    assert_eq!(whole[..2], [1, 2]);
    assert!(whole[2] > FRAMES - 40, "{whole:?}");
    // Each frame after the fourth creates one header: its own, or that of the last before it.
    let own = line.headers.frames.iter().zip(4..).filter(|(header, arrival)| header.tag == *arrival).count();
    let share = own as f64 / line.headers.frames.len() as f64;
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn what_cannot_be_trimmed_is_dropped_if_it_finds_no_room() {
    let mut line = line(rooms(2, 1000), 1);
    let whole = |tag| item(tag, 100, Kind::Whole);
    let damaged = Item { damaged: true, ..data(3) };
    let (counters, refused) = admit(&mut line, [whole(0), whole(1), whole(2), damaged, data(4)]);
    // No coin trims a frame that must stay whole.
    assert_eq!(refused, [Refused::Dropped(whole(2)), Refused::Dropped(damaged)]);
    assert_eq!((counters.over_limit, counters.trimmed), (2, 1));
    assert_eq!(drain(&mut line, 1000), [(100, 0), (110, 4), (210, 1)]);
}

#[test]
fn headers_that_find_no_room_are_dropped_or_go_back() {
    for returns in [false, true] {
        let mut line = line(Trim { returns, ..rooms(1, 30) }, 1);
        // The last two would not fit even if they were short enough: 10 of 30 bytes are left.
        let long = item(8, 11, Kind::Headers);
        let trimmed = item(9, 11, Kind::Trimmed);
        let (counters, refused) =
            admit(&mut line, [data(0), header(1), header(2), long, trimmed, data(3), header(4), data(5)]);
        let cut = |tag| item(tag, HEADER, Kind::Trimmed);
        let expected = if returns {
            [Refused::Dropped(long), Refused::Returned(trimmed), Refused::Dropped(header(4)), Refused::Returned(cut(5))]
        } else {
            [long, trimmed, header(4), cut(5)].map(Refused::Dropped)
        };
        assert_eq!(refused, expected);
        assert_eq!((counters.trimmed, counters.over_limit), (2, 0));
        assert_eq!((counters.returned, counters.header_drops), if returns { (2, 2) } else { (0, 4) });
    }
}

#[test]
fn a_long_frame_does_not_push_out_a_short_one_for_nothing() {
    for seed in 0..20 {
        let mut line = line(Trim::new(Room::Bytes(250)), seed);
        let (counters, _) = admit(&mut line, [data(0), item(1, 20, Kind::Trimmable), item(2, 200, Kind::Trimmable)]);
        assert_eq!(counters.trimmed, 1);
        assert_eq!(line.data.frames.iter().map(|frame| frame.tag).collect::<Vec<_>>(), [1], "seed {seed}");
    }
}

#[test]
fn queues_are_told_as_frames_met_them() {
    let mut line = line(rooms(3, 1000), 1);
    admit(&mut line, [data(0), data(1), data(2), header(3), header(4)]);
    let [data, headers] = line.queues();
    assert_eq!((data.frames, data.mean_bytes, data.peak_bytes), (3, 100, 200));
    assert_eq!((headers.frames, headers.peak_bytes), (2, 10));
}

/// A trimming line, simulated by the nanosecond.
struct Naive {
    data: Vec<Item>,
    headers: Vec<Item>,
    on_line: Option<(Item, u32, bool)>,
    in_a_row: u32,
    coin: Pcg64,
    trim: Trim,
    left: Vec<(u64, Item)>,
    dropped: Vec<Item>,
    returned: Vec<Item>,
    trimmed: u64,
}

impl Naive {
    fn fits(&self, frame: &Item, is_data: bool) -> bool {
        let (queue, room) =
            if is_data { (&self.data, self.trim.data) } else { (&self.headers, Room::Bytes(self.trim.headers)) };
        let on_line = self.on_line.iter().filter(|(.., of_data)| *of_data == is_data).map(|(frame, ..)| frame);
        let all: Vec<&Item> = queue.iter().chain(on_line).chain([frame]).collect();
        match room {
            Room::Packets(most) => all.len() <= most as usize,
            Room::Bytes(most) => all.iter().map(|frame| u64::from(frame.bytes)).sum::<u64>() <= most,
        }
    }

    fn arrive(&mut self, frame: Item) {
        if matches!(frame.kind, Kind::Headers | Kind::Trimmed) {
            return self.arrive_header(frame);
        }
        if self.fits(&frame, true) {
            return self.data.push(frame);
        }
        if frame.kind == Kind::Whole {
            return self.dropped.push(frame);
        }
        let mut victim = frame;
        if self.coin.next_u64() >= 1 << 63 && self.data.last().is_some_and(|last| last.kind == Kind::Trimmable) {
            let last = self.data.pop().unwrap();
            if self.fits(&frame, true) {
                self.data.push(frame);
                victim = last;
            } else {
                self.data.push(last);
            }
        }
        if victim.damaged {
            return self.dropped.push(victim);
        }
        self.trimmed += 1;
        self.arrive_header(Item { bytes: HEADER, kind: Kind::Trimmed, ..victim });
    }

    fn arrive_header(&mut self, frame: Item) {
        if self.fits(&frame, false) {
            self.headers.push(frame);
        } else if frame.kind == Kind::Trimmed && self.trim.returns {
            self.returned.push(frame);
        } else {
            self.dropped.push(frame);
        }
    }

    fn start(&mut self) {
        let both = !self.data.is_empty() && !self.headers.is_empty();
        if self.on_line.is_some() || self.data.is_empty() && self.headers.is_empty() {
            return;
        }
        let is_data = if both { self.in_a_row == self.trim.ratio } else { self.headers.is_empty() };
        if both {
            self.in_a_row = if is_data { 0 } else { self.in_a_row + 1 };
        }
        let frame = if is_data { self.data.remove(0) } else { self.headers.remove(0) };
        self.on_line = Some((frame, frame.bytes, is_data));
    }

    /// Advances by a nanosecond.
    fn tick(&mut self, now: u64) {
        if let Some((frame, left, _)) = &mut self.on_line {
            *left -= 1;
            if *left == 0 {
                self.left.push((now, *frame));
                self.on_line = None;
                self.start();
            }
        }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Whole),
        Just(Kind::Trimmable),
        Just(Kind::Trimmable),
        Just(Kind::Headers),
        Just(Kind::Trimmed)
    ]
}

fn room() -> impl Strategy<Value = Room> {
    prop_oneof![(1..5u32).prop_map(Room::Packets), (1..150u64).prop_map(Room::Bytes)]
}

proptest! {
    #[test]
    fn it_does_what_a_naive_line_does(
        data in room(), headers in 1..80u64, ratio in 1..5u32, returns: bool, seed: u64,
        arrivals in prop::collection::vec((0..60u64, 1..60u32, kind(), prop::bool::weighted(0.1)), 1..150),
        polls in prop::collection::vec(1..200u64, 1..10),
    ) {
        let trim = Trim { data, headers, ratio, returns };
        let mut line = line(trim, seed);
        let mut counters = Counters::default();
        let (mut left, mut dropped, mut returned) = (Vec::new(), Vec::new(), Vec::new());
        let mut naive = Naive {
            data: Vec::new(), headers: Vec::new(), on_line: None, in_a_row: 0, coin: Pcg64::seed_from_u64(seed), trim,
            left: Vec::new(), dropped: Vec::new(), returned: Vec::new(), trimmed: 0,
        };
        let (mut now, mut take) = (0, |line: &mut Trimming<Item>, now| {
            while let Some((at, _)) = line.due(Time(now)) {
                let frame = line.drop_first().unwrap();
                left.push((at.0, frame));
            }
        });
        let mut polls = polls.into_iter().cycle();
        let mut next_poll = 0;
        for (tag, (pause, bytes, kind, damaged)) in arrivals.iter().enumerate() {
            let bytes = if matches!(kind, Kind::Whole | Kind::Trimmable) { bytes + HEADER } else { *bytes };
            let frame = Item { tag, bytes, kind: *kind, damaged: *damaged };
            for _ in 0..*pause {
                now += 1;
                naive.tick(now);
                // Polls at intermediate times change nothing.
                if now >= next_poll {
                    next_poll = now + polls.next().unwrap();
                    take(&mut line, now);
                }
            }
            take(&mut line, now);
            match line.admit(Time(now), frame, &mut counters) {
                Some(Refused::Dropped(frame)) => dropped.push(frame),
                Some(Refused::Returned(frame)) => returned.push(frame),
                None => {}
            }
            naive.arrive(frame);
            naive.start();
        }
        while naive.on_line.is_some() {
            now += 1;
            naive.tick(now);
        }
        take(&mut line, now);
        prop_assert_eq!(line.next_deadline(), Time::NEVER);
        prop_assert_eq!(&left, &naive.left);
        prop_assert_eq!(&dropped, &naive.dropped);
        prop_assert_eq!(&returned, &naive.returned);
        prop_assert_eq!(counters.trimmed, naive.trimmed);
        prop_assert_eq!(counters.returned, returned.len() as u64);
        prop_assert_eq!(counters.over_limit + counters.header_drops, dropped.len() as u64);
        prop_assert_eq!(left.len() + dropped.len() + returned.len(), arrivals.len());
    }
}
