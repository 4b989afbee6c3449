//! Ids of the communication manager that wait for the link-layer addresses of their peers.

use std::net::IpAddr;

use irnic_cm::CmId;
use irnic_ports::Resolution;
use irnic_transports::Time;

/// An id that waits for the result.
struct Waiting {
    id: CmId,
    dst: IpAddr,
    /// End of the application's timeout.
    until: Time,
}

/// The waiting ids. No more than the communication manager has.
pub(super) struct Neighbours {
    waiting: Vec<Waiting>,
    /// Earliest end of an application's timeout.
    deadline: Time,
}

impl Neighbours {
    pub(super) fn new() -> Neighbours {
        Neighbours { waiting: Vec::new(), deadline: Time::NEVER }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns when [`Neighbours::poll`] next has a result if no neighbour answers.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        self.deadline
    }

    /// Waits for the way to `dst` until `until`, for `id`.
    pub(super) fn wait(&mut self, id: CmId, dst: IpAddr, until: Time) {
        self.waiting.push(Waiting { id, dst, until });
        self.deadline = self.deadline.min(until);
    }

    /// Removes ids that no longer exist.
    pub(super) fn retain(&mut self, exists: impl Fn(CmId) -> bool) {
        self.waiting.retain(|waiting| exists(waiting.id));
    }

    /// Queries `resolve`, the port's, for each destination, and calls `report` with each id whose wait is over: status
    /// 0, −EHOSTUNREACH if the neighbour does not answer, or −ETIMEDOUT if the application's timeout is over. The
    /// latter is the kernel's status (drivers/infiniband/core/addr.c), which never gives up before the application.
    pub(super) fn poll(
        &mut self,
        now: Time,
        resolve: &mut dyn FnMut(IpAddr) -> Resolution,
        report: &mut dyn FnMut(CmId, i32),
    ) {
        self.deadline = Time::NEVER;
        let deadline = &mut self.deadline;
        self.waiting.retain(|waiting| {
            let status = match resolve(waiting.dst) {
                Resolution::Ready => 0,
                Resolution::Unreachable => -libc::EHOSTUNREACH,
                Resolution::Pending if now >= waiting.until => -libc::ETIMEDOUT,
                Resolution::Pending => {
                    *deadline = (*deadline).min(waiting.until);
                    return true;
                }
            };
            report(waiting.id, status);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use irnic_cm::{Cm, CmConfig, PortSpace, QpKind};

    use super::*;

    const HERE: [u8; 4] = [10, 0, 0, 1];
    const AWAY: [u8; 4] = [10, 0, 0, 2];
    const SLOW: [u8; 4] = [10, 0, 0, 3];

    fn ids() -> [CmId; 3] {
        let mut cm = Cm::new(CmConfig::new([1; 32], 1, 1, 1 << 22));
        [(); 3].map(|()| cm.create(PortSpace::Tcp, QpKind::Rc).expect("an id"))
    }

    /// Returns the results at a time, with one neighbour that has answered, one that has not, and one being asked.
    fn results(neighbours: &mut Neighbours, now: u64) -> Vec<(CmId, i32)> {
        let mut results = Vec::new();
        let mut resolve = |dst: IpAddr| match dst {
            dst if dst == IpAddr::from(HERE) => Resolution::Ready,
            dst if dst == IpAddr::from(AWAY) => Resolution::Unreachable,
            _ => Resolution::Pending,
        };
        neighbours.poll(Time(now), &mut resolve, &mut |id, status| results.push((id, status)));
        results
    }

    #[test]
    fn ids_are_told_what_the_port_knows_and_when_their_time_is_over() {
        let [here, away, slow] = ids();
        let mut neighbours = Neighbours::new();
        for (id, dst) in [(here, HERE), (away, AWAY), (slow, SLOW)] {
            neighbours.wait(id, dst.into(), Time(100));
        }
        assert_eq!(results(&mut neighbours, 1), [(here, 0), (away, -libc::EHOSTUNREACH)]);
        assert_eq!((results(&mut neighbours, 99), neighbours.next_deadline()), (Vec::new(), Time(100)));
        assert_eq!(results(&mut neighbours, 100), [(slow, -libc::ETIMEDOUT)]);
        assert!(neighbours.is_empty());
        assert_eq!(neighbours.next_deadline(), Time::NEVER);
    }

    #[test]
    fn ids_that_are_gone_are_told_nothing() {
        let [kept, removed, _] = ids();
        let mut neighbours = Neighbours::new();
        for id in [kept, removed] {
            neighbours.wait(id, SLOW.into(), Time(100));
        }
        neighbours.retain(|id| id != removed);
        assert_eq!(results(&mut neighbours, 100), [(kept, -libc::ETIMEDOUT)]);
    }
}
