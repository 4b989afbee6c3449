//! Time stamps of frames in rings.
//!
//! Each port is driven by a clock of its caller's choice. Both sides of a ring can read the host's clock, [`host_now`]:
//! the writer stamps each frame with the host's time of its call, and the reader converts the stamp to its own clock. A
//! stamp costs an addition: an [`Offset`] converts between the caller's clock and the host's, which is read only
//! occasionally.
//!
//! Stamps are not trusted. A stamp counts only between two times that the reader knows itself: its last read without
//! the frame, and now.

use irnic_transports::Time;
use irnic_transports::time::{MS, SEC, US};

use super::offset::Offset;

/// Interval between two readings of the host's clock, in ns. A reading takes some 40 ns, a tenth of the latency of a
/// message through a ring.
const READ_EVERY: u64 = 100 * US;

/// Tolerance for a stamp relative to what the reader knows, if that is little: as long as a process may wait for a core
/// on a busy host, in ns.
const SLACK: u64 = 100 * MS;

/// Flag in a stamp: the frame had reached the host by another way before it was written into the ring.
const PASSED_ON: u64 = 1 << 63;

/// Returns the time of the clock shared by all processes of the host, CLOCK_MONOTONIC.
#[inline]
pub fn host_now() -> Time {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    Time(t.tv_sec as u64 * SEC + t.tv_nsec as u64)
}

/// Converts between the clock of a port's caller and that of stamps.
pub(super) struct RingClock {
    offset: Offset,
    /// Time of the next reading of the host's clock.
    next: Time,
    /// The latest stamp that was ahead of its reader's `now`. The reader's own stamps are no earlier, so that no answer
    /// seems to precede its question.
    latest_stamp: u64,
}

impl RingClock {
    /// Creates the clock of a ring whose sides are driven by separate clocks.
    pub(super) fn host() -> RingClock {
        RingClock { offset: Offset::NEW, next: Time::ZERO, latest_stamp: 0 }
    }

    /// Creates the clock of a ring whose sides are driven by one clock, which is then also that of stamps.
    pub(super) fn common() -> RingClock {
        RingClock { offset: Offset::NEW, next: Time::NEVER, latest_stamp: 0 }
    }

    /// Reads the host's clock if due. Must be called with the current time before any of the methods below.
    #[inline]
    pub(super) fn refresh(&mut self, now: Time) {
        if now >= self.next {
            self.read(now);
        }
    }

    #[cold]
    fn read(&mut self, now: Time) {
        self.offset.observe(now, host_now().0);
        self.next = now + READ_EVERY;
    }

    /// Returns the stamp of a frame that is sent at `now`.
    #[inline]
    pub(super) fn stamp(&self, now: Time) -> u64 {
        self.offset.at(now).max(self.latest_stamp)
    }

    /// Returns the stamp of a frame that another port received at `arrived` and that is forwarded through a ring.
    pub(super) fn passed_on(&self, arrived: Time) -> u64 {
        self.offset.at(arrived) | PASSED_ON
    }

    /// Returns when a frame with this stamp arrived. It is read at `now` and was not in the ring at `unseen_at`, the
    /// reader's previous read; pass a later time than `now` if there was none.
    #[inline]
    pub(super) fn arrival(&mut self, now: Time, stamp: u64, unseen_at: Time) -> Time {
        let own = self.offset.at(now);
        let earliest = if unseen_at <= now { unseen_at } else { now - SLACK };
        if stamp <= own { (now - (own - stamp)).max(earliest) } else { self.unusual(now, stamp, earliest) }
    }

    fn unusual(&mut self, now: Time, stamp: u64, earliest: Time) -> Time {
        if stamp & PASSED_ON != 0 {
            return self.offset.convert(now, stamp & !PASSED_ON).max(earliest - SLACK);
        }
        // Sent after `now` was read. Or forged: then this side's answers seem late for a time, at worst as late as they
        // are read.
        if stamp <= self.offset.at(now).saturating_add(SLACK) {
            self.latest_stamp = self.latest_stamp.max(stamp);
        }
        now
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The clock of a caller that shows 0 when the host's shows `origin`.
    fn clock(origin: u64) -> RingClock {
        let mut clock = RingClock::host();
        clock.offset.observe(Time(SEC), SEC + origin);
        clock.next = Time::NEVER;
        clock
    }

    #[test]
    fn a_reader_that_comes_late_sees_when_the_writer_was_called() {
        let (writer, mut reader) = (clock(1_000 * SEC), clock(400 * SEC));
        let stamp = writer.stamp(Time(5 * SEC));
        for late in [0, 1, 30 * SEC] {
            assert_eq!(reader.arrival(Time(605 * SEC + late), stamp, Time::ZERO), Time(605 * SEC));
        }
        // The writer stalled before it published: the frame was not there at 606 s.
        assert_eq!(reader.arrival(Time(607 * SEC), stamp, Time(606 * SEC)), Time(606 * SEC));
    }

    #[test]
    fn what_another_port_received_keeps_its_time() {
        let (writer, mut reader) = (clock(1_000 * SEC), clock(400 * SEC));
        let stamp = writer.passed_on(Time(5 * SEC));
        let unseen = Time(605 * SEC + SLACK / 2);
        assert_eq!(reader.arrival(unseen + 1, stamp, unseen), Time(605 * SEC));
    }

    #[test]
    fn a_stamp_counts_between_what_the_reader_knows() {
        let (now, unseen) = (Time(900 * SEC), Time(899 * SEC));
        let host = |now: Time| now.0 + 400 * SEC;
        let cases = [
            (0, unseen, unseen),
            (host(unseen) - 1, unseen, unseen),
            (host(unseen) + 7, unseen, unseen + 7),
            (host(now) + 1, unseen, now),
            (u64::MAX, unseen, now),
            (PASSED_ON, unseen, unseen - SLACK),
            (host(unseen) | PASSED_ON, unseen, unseen),
            (0, Time::NEVER, now - SLACK),
            (PASSED_ON, Time::NEVER, now - 2 * SLACK),
            // A caller whose clock went back.
            (0, now + 5, now - SLACK),
        ];
        for (stamp, unseen_at, expected) in cases {
            assert_eq!(clock(400 * SEC).arrival(now, stamp, unseen_at), expected, "{stamp:#x} {unseen_at:?}");
        }
    }

    #[test]
    fn no_answer_is_there_before_its_question() {
        let (mut a, mut b) = (clock(0), clock(400 * SEC));
        let asked = Time(905 * SEC);
        // b read its clock, then a asked, then b polled the ring.
        let b_now = Time(505 * SEC - 300);
        assert_eq!(b.arrival(b_now, a.stamp(asked), Time::ZERO), b_now);
        let answer = b.stamp(b_now);
        assert_eq!(a.arrival(asked + 1000, answer, asked - 1000), asked);
        // Later b's clock counts.
        assert_eq!(b.stamp(b_now + 500), 905 * SEC + 200);
    }

    #[test]
    fn a_lie_about_the_future_is_forgotten() {
        let mut clock = clock(400 * SEC);
        let now = Time(5 * SEC);
        for ahead in [SLACK, SLACK + 1, u64::MAX / 2 - 405 * SEC] {
            assert_eq!(clock.arrival(now, 405 * SEC + ahead, Time::NEVER), now);
        }
        assert_eq!(clock.stamp(now), 405 * SEC + SLACK);
        assert_eq!(clock.stamp(now + SLACK + 1), 405 * SEC + SLACK + 1);
    }

    #[test]
    fn ends_on_one_time_line_need_no_clock() {
        let mut clock = RingClock::common();
        clock.refresh(Time(7));
        assert_eq!(clock.stamp(Time(7)), 7);
        assert_eq!(clock.arrival(Time(9), 7, Time::NEVER), Time(7));
    }
}
