//! Hosts that are not processes.

use super::*;

impl LabServer {
    /// Makes a station on an Ethernet a host of the lab: the server acts as all others on its link. The host is no
    /// longer available to processes.
    ///
    /// # Errors
    /// If there is no such host, or it is a guest already; a [`FrameError`](crate::frames::FrameError) if the carrier
    /// cannot be opened.
    pub fn add_guest(&mut self, host: u32, spec: &FrameSpec) -> io::Result<()> {
        let hosts = self.of_host.len() as u32;
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if host >= hosts {
            return wrong(format!("there is no host {host}; expected 0 to {}", hosts - 1));
        }
        if self.is_guest(host) {
            return wrong(format!("host {host} has frames already; expected one carrier for each host"));
        }
        let guest = Guest::open(host, spec, self.addressing, hosts)?;
        self.epoll.add(guest.descriptor(), libc::EPOLLIN, GUEST)?;
        self.guests.push(guest);
        Ok(())
    }

    pub(super) fn is_guest(&self, host: u32) -> bool {
        self.guests.iter().any(|guest| guest.host == host)
    }

    /// Returns the counters of guests' packets.
    pub fn guests(&self) -> impl Iterator<Item = GuestCounters> {
        self.guests.iter().map(Guest::counters)
    }

    /// Passes on what guests have sent, as their links become free.
    pub(super) fn collect_from_guests(&mut self, each: &mut dyn FnMut(Leaving<'_>)) {
        let LabServer { guests, page, .. } = self;
        for guest in guests {
            let (start, host) = (page.now(), guest.host);
            let free = page.link_of(host).0 <= start;
            guest.take(free, &mut |dst, path, frame| {
                let Path { udp_src, traffic_class, .. } = *path;
                each(Leaving { host, dst: Some(dst), start, udp_src, traffic_class, frame, telemetry: None });
            });
        }
    }

    /// Returns the time until a link with a waiting packet of a guest becomes free.
    pub(super) fn until_links_are_free(&self) -> Duration {
        let waiting = self.guests.iter().filter(|guest| guest.waits());
        let free = waiting.map(|guest| self.page.line().host_time(self.page.link_of(guest.host).0)).min();
        free.map_or(Duration::MAX, |free| Duration::from_nanos(free.0.saturating_sub(host_now().0)))
    }
}
