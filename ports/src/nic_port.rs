//! A NIC on a port: packets become frames and frames packets, and ICRCs are computed and checked.

use std::io;

use irnic_nic::frame::{
    Icrc, emit_around, emit_fast, emit_fast_around, emit_frame, fast_len, payload_in_place, receive_frame,
};
use irnic_nic::{FastPacket, Nic, TxSink};
use irnic_transports::telemetry::Int;
use irnic_transports::{Gather, Path, Payload, Time, TxPacket};

use crate::{Port, TxFrame};

/// A NIC with the port that it sends and receives through, driven by the caller's time.
/// [`TimedNicPort`](crate::TimedNicPort) drives one whose port has a clock of its own.
///
/// Two NICs in one process, and an RDMA WRITE from one to the other:
///
/// ```
/// use irnic_nic::frame::Icrc;
/// use irnic_nic::{Nic, NicConfig, QpConfig};
/// use irnic_ports::{NicPort, host_now, mem};
/// use irnic_transports::qp::{Access, ConnectParams, SendData, SendWr, Sge, Wc, WcStatus};
/// use irnic_transports::wire::Mtu;
/// use irnic_transports::{Path, TransportConfig};
///
/// let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
/// let open = |port, seed| -> Result<_, Box<dyn std::error::Error>> {
///     let mut nic = Nic::new(NicConfig { seed: [seed; 32], ..NicConfig::default() });
///     let (pd, cq) = (nic.alloc_pd()?, nic.create_cq(16)?);
///     let memory = nic.alloc_mr(pd, 4096, rights)?;
///     let qpn = nic.create_qp(&QpConfig::new(pd, cq, TransportConfig::preset("irn").expect("a preset")))?;
///     Ok((NicPort::new(nic, port, Icrc::Needed), cq, memory, qpn))
/// };
/// let (left, right) = mem::pair();
/// let (mut a, cq, from, a_qpn) = open(left, 1)?;
/// let (mut b, _, to, b_qpn) = open(right, 2)?;
/// for (end, qpn, peer, [src, dst]) in [(&mut a, a_qpn, b_qpn, [1, 2]), (&mut b, b_qpn, a_qpn, [2, 1])] {
///     let [src, dst] = [src, dst].map(|last| [10, 0, 0, last].into());
///     let path = Path { src, dst, udp_src: 0xc000, traffic_class: 0, hop_limit: 64 };
///     let mut params = ConnectParams::reliable(path, Mtu::B1024, peer);
///     params.access = rights;
///     end.nic.connect(qpn, &params)?;
/// }
///
/// a.nic.bytes_mut(&from).expect("memory of a").fill(7);
/// let sges = [Sge { addr: from.addr, len: 4096, lkey: from.lkey }];
/// a.nic.post_send(a_qpn, &SendWr::write(1, SendData::Sges(&sges), to.addr, to.rkey))?;
/// let mut completion = [Wc::EMPTY];
/// while a.nic.poll_cq(cq, &mut completion)? == 0 {
///     a.poll(host_now())?;
///     b.poll(host_now())?;
/// }
/// assert_eq!(completion[0].status, WcStatus::Success);
/// assert_eq!(b.nic.bytes(&to).expect("memory of b"), [7; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct NicPort<P> {
    /// The firmware.
    pub nic: Nic,
    /// The port.
    pub port: P,
    pub(crate) icrc: Icrc,
    held: Option<Held>,
    pub(crate) received_bytes: u64,
    /// Number of consecutive calls after which more frames may have arrived than were read.
    behind: u8,
    /// The port may deliver notices of fair rates.
    notices: bool,
}

/// Length in bytes from which copying the payload of a frame may cost more than referring to it in place. A frame
/// without an ICRC stays on the host: a change of its payload would go undetected.
const IN_PLACE: usize = 1024;

/// Maximum number of consecutive calls for which timers wait until all arrived frames are read.
const MOST_BEHIND: u8 = 16;

/// A frame that the port had no room for.
#[derive(Debug)]
struct Held {
    path: Path,
    dest_qp: u32,
    icrc: bool,
    irn: bool,
    telemetry: Option<Box<Int>>,
    bytes: Vec<u8>,
}

/// Makes frames of packets, and passes them to a port.
struct Sink<'a, P> {
    port: &'a mut P,
    icrc: Icrc,
    held: &'a mut Option<Held>,
    now: Time,
    /// The last packet of the fast path needed an ICRC.
    last_icrc: bool,
}

impl<P: Port> Sink<'_, P> {
    /// Returns whether frames to a queue pair need an ICRC.
    #[inline]
    fn needs_icrc(&self, path: &Path, dest_qp: u32) -> bool {
        match self.icrc {
            Icrc::Checked => true,
            Icrc::Needed => self.port.needs_icrc(path, dest_qp),
            Icrc::Off => false,
        }
    }

    /// Queues a long frame whose payload, `at` bytes from its beginning, may stay where it is: `fill` writes what is
    /// around it. Returns `None`, and does nothing, if the payload has to be copied.
    #[inline]
    fn in_place(
        &mut self,
        frame: &TxFrame<'_>,
        at: usize,
        payload: &Payload<'_>,
        fill: impl Fn(&Gather<'_>, &mut [u8]),
    ) -> Option<bool> {
        if frame.len < IN_PLACE {
            return None;
        }
        let payload = payload_in_place(payload)?;
        self.port.transmit_in_place(self.now, frame, at, &payload, &mut |out| fill(&payload, out))
    }

    /// Queues a packet of the fast path as [`Self::in_place`] does.
    #[inline(never)]
    fn fast_in_place(&mut self, packet: &FastPacket<'_>, frame: &TxFrame<'_>, wire: Option<&Path>) -> Option<bool> {
        self.in_place(frame, packet.head.len(), &Payload::Gather(packet.payload), |_, out| {
            emit_fast_around(packet, wire, out);
        })
    }

    /// Keeps a frame, written by `fill`, that the port had no room for.
    #[cold]
    fn hold(&mut self, frame: &TxFrame<'_>, telemetry: Option<&Int>, fill: impl FnOnce(&mut [u8])) {
        let mut bytes = vec![0; frame.len];
        fill(&mut bytes);
        let TxFrame { path, dest_qp, icrc, irn, .. } = *frame;
        *self.held =
            Some(Held { path: *path, dest_qp, icrc, irn, telemetry: telemetry.map(|int| Box::new(*int)), bytes });
    }
}

impl<P: Port> TxSink for Sink<'_, P> {
    fn packet(&mut self, packet: &TxPacket<'_>) -> bool {
        let len = packet.headers.frame_len(packet.payload.len());
        let (path, dest_qp, irn) = (packet.path, packet.headers.bth.dest_qp, packet.headers.irn.is_some());
        let icrc = self.needs_icrc(path, dest_qp);
        let wire = icrc.then(|| self.port.wire_path(path));
        let frame = TxFrame { path, dest_qp, len, icrc, irn };
        let telemetry = packet.sideband.telemetry;
        attach(self.port, telemetry);
        let in_place = self.in_place(&frame, packet.headers.len(), &packet.payload, |payload, out| {
            emit_around(packet, payload, wire.as_ref(), out);
        });
        let mut fill = |out: &mut [u8]| emit_frame(packet, wire.as_ref(), out);
        let sent = in_place.unwrap_or_else(|| self.port.transmit(self.now, &frame, &mut fill));
        if !sent {
            self.hold(&frame, telemetry, fill);
        }
        sent
    }

    fn takes_fast(&self) -> bool {
        true
    }

    #[inline]
    fn carries_acks(&self, path: &Path, dest_qp: u32) -> bool {
        self.icrc != Icrc::Checked && self.port.carries_acks(path, dest_qp)
    }

    #[inline]
    fn fast(&mut self, packet: &FastPacket<'_>) -> bool {
        let FastPacket { path, dest_qp, follows, .. } = *packet;
        let icrc = if follows { self.last_icrc } else { self.needs_icrc(path, dest_qp) };
        self.last_icrc = icrc;
        let wire = icrc.then(|| self.port.wire_path(path));
        let frame = TxFrame { path, dest_qp, len: fast_len(packet), icrc, irn: true };
        let in_place = if frame.len < IN_PLACE { None } else { self.fast_in_place(packet, &frame, wire.as_ref()) };
        let mut fill = |out: &mut [u8]| emit_fast(packet, wire.as_ref(), out);
        let sent = in_place.unwrap_or_else(|| self.port.transmit(self.now, &frame, &mut fill));
        if !sent {
            self.hold(&frame, None, fill);
        }
        sent
    }
}

/// Attaches telemetry to the next frame, if the port can carry it.
#[inline]
fn attach<P: Port>(port: &mut P, telemetry: Option<&Int>) {
    if let Some(telemetry) = telemetry
        && let Some(port) = port.timed()
    {
        port.attach(telemetry);
    }
}

impl<P: Port> NicPort<P> {
    /// Maximum number of packets that [`Self::transmit`] takes from the NIC.
    pub const TX_BATCH: usize = 256;
    /// Approximate maximum number of frames that [`Self::receive`] takes from the port: as many as a queue pair can
    /// answer.
    pub const RX_BATCH: usize = Nic::RX_BATCH;

    /// Connects `nic` to `port`. `icrc` selects which frames carry an ICRC and which are checked.
    pub fn new(mut nic: Nic, port: P, icrc: Icrc) -> NicPort<P> {
        if let Some(recall) = port.recall() {
            nic.set_recall(recall);
        }
        let notices = port.gives_notices();
        NicPort { nic, port, icrc, held: None, received_bytes: 0, behind: 0, notices }
    }

    /// Receives, runs timers and transmits: [`Self::receive`], then [`Self::transmit`]. Returns the number of frames
    /// moved. `now` must not decrease from call to call.
    ///
    /// # Errors
    /// The port's error. The NIC and the port remain usable.
    #[inline]
    pub fn poll(&mut self, now: Time) -> io::Result<usize> {
        Ok(self.receive(now)? + self.transmit(now)?)
    }

    /// Passes arrived frames to the NIC and runs due timers. Returns the number of frames that arrived. If the
    /// application polls its completions before it calls [`Self::transmit`], its replies leave together with the
    /// acknowledgements.
    ///
    /// # Errors
    /// The port's error.
    #[inline]
    pub fn receive(&mut self, now: Time) -> io::Result<usize> {
        self.receive_some(now, Self::RX_BATCH)
    }

    /// Like [`Self::receive`], but takes about `budget` frames at most: between two calls of [`Self::transmit`] no more
    /// than [`Self::RX_BATCH`] in all.
    ///
    /// # Errors
    /// The port's error.
    #[inline]
    pub fn receive_some(&mut self, now: Time, budget: usize) -> io::Result<usize> {
        let NicPort { nic, port, icrc, received_bytes, notices, behind, .. } = self;
        if *notices {
            port.take_notices(now, &mut |at, notice| nic.receive_notice(now, at, notice));
        }
        let received = port.receive(now, budget, &mut |frame| {
            *received_bytes += frame.bytes.len() as u64;
            receive_frame(nic, now, &frame, *icrc);
        })?;
        // Timers run only when everything that has arrived is read, but are not deferred forever by a flood.
        *behind = if received < budget { 0 } else { *behind + 1 };
        if *behind == 0 || *behind > MOST_BEHIND {
            *behind = 0;
            if nic.next_deadline() <= now {
                nic.on_deadline_knowing(now, |path, qpn| port.peer_process(path, qpn));
            }
        }
        // Otherwise after the answers.
        if !self.busy() {
            self.port.mark_answered();
        }
        Ok(received)
    }

    /// Returns the length of all frames received so far, in bytes.
    #[inline]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Sends what the NIC has ready, at most [`Self::TX_BATCH`] packets, and flushes the port. Returns the number of
    /// packets sent.
    ///
    /// # Errors
    /// The port's error.
    #[inline]
    pub fn transmit(&mut self, now: Time) -> io::Result<usize> {
        let sent = self.queue(now)?;
        self.port.flush(now)?;
        self.answered_by(sent);
        Ok(sent)
    }

    /// Reports to the port, after packets were sent, that what was received is answered, unless the answers found no
    /// room. With more queue pairs than send in one call this is early for some, whose round trips are long.
    #[inline]
    fn answered_by(&mut self, sent: usize) {
        if sent > 0 && self.held.is_none() {
            self.port.mark_answered();
        }
    }

    /// Like [`Self::transmit`], but leaves in the port what gains by waiting for future packets ([`Port::flush_full`]).
    /// Returns the number of packets taken from the NIC, and whether any wait.
    ///
    /// # Errors
    /// The port's error.
    #[inline]
    pub fn transmit_full(&mut self, now: Time) -> io::Result<(usize, bool)> {
        let sent = self.queue(now)?;
        let waits = self.port.flush_full(now)?;
        if !waits {
            self.answered_by(sent);
        }
        Ok((sent, waits))
    }

    /// Passes what the NIC has ready to the port.
    #[inline]
    fn queue(&mut self, now: Time) -> io::Result<usize> {
        self.queue_some(now, Self::TX_BATCH)
    }

    /// Passes at most `most` packets to the port.
    #[inline]
    pub(crate) fn queue_some(&mut self, now: Time, most: usize) -> io::Result<usize> {
        let NicPort { nic, port, icrc, held, .. } = self;
        if let Some(Held { path, dest_qp, icrc, irn, telemetry, bytes }) = held {
            attach(port, telemetry.as_deref());
            let frame = TxFrame { path, dest_qp: *dest_qp, len: bytes.len(), icrc: *icrc, irn: *irn };
            if !port.transmit(now, &frame, &mut |out| out.copy_from_slice(bytes)) {
                port.flush(now)?;
                return Ok(0);
            }
            *held = None;
        }
        if !nic.wants_tx() {
            return Ok(0);
        }
        Ok(nic.poll_transmit_into(now, most, &mut Sink { port, icrc: *icrc, held, now, last_icrc: false }))
    }

    /// Returns when [`Self::poll`] must be called next if nothing arrives: the earliest deadline of the NIC and the
    /// port.
    #[inline]
    pub fn next_deadline(&self) -> Time {
        self.nic.next_deadline().min(self.port.next_deadline())
    }

    /// Returns whether there is something to send now.
    #[inline]
    pub fn busy(&self) -> bool {
        self.nic.wants_tx() || self.held.is_some()
    }
}
