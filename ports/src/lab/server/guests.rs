//! Hosts that are not processes, and kernels of hosts.

use super::*;
use crate::lab::held::Held;
use crate::lab::tun::Waiting;

impl LabServer {
    /// Delivers a frame to a guest or a kernel as soon as its time has come.
    pub(super) fn hold(&mut self, host: u32, at: u64, arriving: &Arriving<'_>) {
        let Arriving { src, udp_src, traffic_class, corrupted, .. } = *arriving;
        let mut frame = self.spare.pop().unwrap_or_default();
        frame.clear();
        frame.extend_from_slice(arriving.frame);
        let held = Held { at, host, src, udp_src, traffic_class, corrupted, frame };
        let place = self.held.partition_point(|earlier| earlier.at <= at);
        self.held.insert(place, held);
        self.hand_over();
    }

    /// Delivers frames whose time has come. Guests get them by [`LabServer::publish`].
    pub(super) fn hand_over(&mut self) {
        let now = self.page.now();
        while self.held.front().is_some_and(|held| held.at <= now) {
            let Some(held) = self.held.pop_front() else { return };
            let Held { host, src, udp_src, traffic_class, corrupted, .. } = held;
            if let Some(guest) = self.guests.iter_mut().find(|guest| guest.host == host) {
                guest.deliver(src, (udp_src, traffic_class), &held.frame, corrupted);
            } else if let Some(tun) = self.tuns.iter_mut().find(|tun| tun.host == host) {
                tun.deliver(traffic_class, &held.frame, corrupted);
            }
            self.spare.push(held.frame);
        }
    }

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

    /// Has the packets that a TUN device in a host's network namespace carries cross the lab's network, between hosts
    /// that have such devices. `file` is the device's, without packet information (`IFF_NO_PI`).
    ///
    /// # Errors
    /// If there is no such host; the system's error.
    pub fn add_kernel(&mut self, host: u32, file: OwnedFd) -> io::Result<()> {
        let hosts = self.of_host.len() as u32;
        if host >= hosts {
            let why = format!("there is no host {host}; expected 0 to {}", hosts - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let tun = Tun::new(host, file, self.addressing, hosts)?;
        self.epoll.add(tun.descriptor(), libc::EPOLLIN, GUEST)?;
        self.tuns.push(tun);
        Ok(())
    }

    /// Returns the counters of the packets of all hosts' kernels; `None` if they have no devices.
    pub fn ip(&self) -> Option<IpCounters> {
        self.tuns.iter().map(Tun::counters).reduce(IpCounters::plus)
    }

    /// Passes on what kernels have sent, as their links become free.
    pub(super) fn collect_from_kernels(&mut self, each: &mut dyn FnMut(Leaving<'_>)) {
        let LabServer { tuns, page, .. } = self;
        for tun in tuns {
            let (start, host) = (page.now(), tun.host);
            let free = page.link_of(host).0 <= start;
            let Some(Waiting { dst, udp_src, traffic_class, frame }) = tun.take(free) else { continue };
            let (dst, telemetry) = (Some(dst), None);
            each(Leaving { host, dst, start, udp_src, traffic_class, frame: &frame, telemetry });
            tun.reuse(frame);
        }
    }

    /// Returns the time until a link with a waiting packet of a guest or kernel becomes free.
    pub(super) fn until_links_are_free(&self) -> Duration {
        let guests = self.guests.iter().filter(|guest| guest.waits()).map(|guest| guest.host);
        let kernels = self.tuns.iter().filter(|tun| tun.waits()).map(|tun| tun.host);
        let free = guests.chain(kernels).map(|host| self.page.line().host_time(self.page.link_of(host).0)).min();
        free.map_or(Duration::MAX, |free| Duration::from_nanos(free.0.saturating_sub(host_now().0)))
    }
}
