//! Helpers of the cases: two connected queue pairs with memory, and short names for operations on them.

use irnic_nic::{Mr, NicConfig, NicEvent};
use irnic_transports::config::TransportConfig;
use irnic_transports::qp::{
    Access, Event, PostError, QpAttr, QpState, RecvWr, SendData, SendOp, SendWr, Sge, Wc, WcStatus,
};
use irnic_transports::wire::Headers;
use irnic_transports::{Payload, RxPacket, Sideband};

use crate::common::{ALL, Connection, End, Network, connect, create, path, region, window};

/// Bytes of each region.
pub const LEN: usize = 1 << 17;

/// A network and a transport to run a case on.
#[derive(Clone, Debug)]
pub struct Case {
    pub transport: &'static str,
    pub impairments: &'static str,
    pub seed: u64,
}

impl Case {
    pub fn irn(&self) -> bool {
        self.transport != "roce"
    }

    pub fn lossy(&self) -> bool {
        self.impairments.contains("loss")
    }
}

const CALM: &str = "delay 5us";
const LOSSY: &str = "delay 5us 3us loss 10% limit 100000";

/// Names the case if it panics.
struct Named<'a>(&'a Case);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in {:?}", self.0);
        }
    }
}

fn run(case: Case, test: &mut impl FnMut(&Case)) {
    let _named = Named(&case);
    test(&case);
}

/// Runs a case over both transports on a network without loss.
pub fn calm(mut test: impl FnMut(&Case)) {
    for transport in ["roce", "irn"] {
        run(Case { transport, impairments: CALM, seed: 1 }, &mut test);
    }
}

/// Runs a case over both transports without loss, then over many seeds with.
pub fn everywhere(mut test: impl FnMut(&Case)) {
    calm(&mut test);
    for seed in 0..if cfg!(debug_assertions) { 8 } else { 60 } {
        for transport in ["roce", "irn"] {
            run(Case { transport, impairments: LOSSY, seed }, &mut test);
        }
    }
}

/// Two connected queue pairs, 0 and 1, each with a region that its peer may use and one for receives.
pub struct Duo {
    pub net: Network,
    pub ends: [End; 2],
    pub connection: Connection,
    pub mem: [Mr; 2],
    pub inbox: [Mr; 2],
    /// Completions so far, in order.
    pub wcs: [Vec<Wc>; 2],
}

/// Returns the defaults of [`Duo::new`]: Local ACK Timeout 1.05 ms, seven retries.
pub fn connection(transport: &str) -> Connection {
    Connection {
        transport: [TransportConfig::preset(transport).unwrap(); 2],
        timeout: 8,
        min_rnr_timer: 3,
        ..Connection::default()
    }
}

pub fn byte(end: usize, i: usize) -> u8 {
    (i * 7 + i / 256 + 100 * end) as u8
}

impl Duo {
    pub fn new(case: &Case) -> Duo {
        Duo::with(case, |_| ())
    }

    pub fn with(case: &Case, tweak: impl FnOnce(&mut Connection)) -> Duo {
        let mut c = connection(case.transport);
        tweak(&mut c);
        let net = Network::new(2, case.impairments, case.seed, &NicConfig::default());
        Duo::on(net, c, false)
    }

    /// Creates a pair on a given network; `srq`: receives of end 1 are shared, 64 elements of one segment.
    pub fn on(mut net: Network, mut c: Connection, srq: bool) -> Duo {
        // No reordering unless the network is configured for it.
        net.byte_time = 0;
        let mut given = [None, None];
        for i in [0, 1] {
            let nic = &mut net.nics[i];
            let pd = nic.alloc_pd().unwrap();
            given[i] = Some((pd, nic.create_cq(4096).unwrap()));
            if srq && i == 1 {
                c.srq[1] = Some(nic.create_srq(pd, 64, 1).unwrap());
            }
        }
        let ends = [create(&mut net, 0, &c, 0, given[0]), create(&mut net, 1, &c, 1, given[1])];
        connect(&mut net, &c, ends);
        let mem = [0, 1].map(|i| region(&mut net, ends[i], LEN, |k| byte(i, k)));
        let inbox = [0, 1].map(|i| net.nics[i].alloc_mr(ends[i].pd, LEN as u64, Access::LOCAL_WRITE).unwrap());
        Duo { net, ends, connection: c, mem, inbox, wcs: [vec![], vec![]] }
    }

    pub fn sge(&self, end: usize, offset: u64, len: u32) -> Sge {
        Sge { addr: self.mem[end].addr + offset, len, lkey: self.mem[end].lkey }
    }

    /// Returns the key of a window on all of an end's region.
    pub fn window(&mut self, end: usize) -> u32 {
        window(&mut self.net, self.ends[end], &self.mem[end])
    }

    /// Posts at end 0: `len` bytes at the start of its region, and at the start of the peer's.
    pub fn post(&mut self, id: u64, op: SendOp, len: u32) {
        self.post_with(id, op, len, |_| ());
    }

    pub fn post_with(&mut self, id: u64, op: SendOp, len: u32, tweak: impl FnOnce(&mut SendWr)) {
        self.try_post(0, id, op, len, tweak).unwrap();
    }

    pub fn try_post(
        &mut self,
        end: usize,
        id: u64,
        op: SendOp,
        len: u32,
        tweak: impl FnOnce(&mut SendWr),
    ) -> Result<(), PostError> {
        let sges = [self.sge(end, 0, len)];
        let mut wr = wr(id, op, &sges, &self.mem[1 - end]);
        tweak(&mut wr);
        self.net.nics[self.ends[end].nic].post_send(self.ends[end].qpn, &wr)
    }

    /// Posts a receive of `len` bytes at end 1, at `id` · 4096 of its inbox.
    pub fn recv(&mut self, id: u64, len: u32) {
        let sges = [Sge { addr: self.inbox[1].addr + id * 4096, len, lkey: self.inbox[1].lkey }];
        let wr = RecvWr { wr_id: id, sges: &sges };
        let nic = &mut self.net.nics[1];
        match self.connection.srq[1] {
            Some(srq) => nic.post_srq_recv(srq, &wr).unwrap(),
            None => nic.post_recv(self.ends[1].qpn, &wr).unwrap(),
        }
    }

    /// Runs until nothing more happens.
    pub fn run(&mut self) {
        let limit = self.net.steps + 400_000;
        while self.net.step() {
            assert!(self.net.steps < limit, "the network does not fall silent");
        }
        self.poll();
    }

    pub fn steps(&mut self, n: usize) {
        for _ in 0..n {
            self.net.step();
        }
        self.poll();
    }

    /// Runs for `ns`.
    pub fn run_for(&mut self, ns: u64) {
        let end = self.net.now + ns;
        self.net.send();
        while self.net.next() <= end {
            self.net.step();
        }
        self.net.now = end;
        self.poll();
    }

    pub fn poll(&mut self) {
        for i in [0, 1] {
            self.wcs[i].extend(completions(&mut self.net, self.ends[i]));
        }
    }

    /// Takes the identifiers and statuses of the completions so far.
    pub fn done(&mut self, end: usize) -> Vec<(u64, WcStatus)> {
        self.poll();
        self.wcs[end].drain(..).map(|wc| (wc.wr_id, wc.status)).collect()
    }

    pub fn state(&self, end: usize) -> QpState {
        self.net.nics[self.ends[end].nic].qp(self.ends[end].qpn).unwrap().state()
    }

    pub fn states(&self) -> [QpState; 2] {
        [0, 1].map(|i| self.state(i))
    }

    /// Takes the asynchronous events so far.
    pub fn events(&mut self, end: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.net.nics[end].poll_event() {
            if let NicEvent::Async(event) = event {
                events.push(event);
            }
        }
        events
    }

    pub fn modify(&mut self, end: usize, attr: QpAttr) {
        self.net.nics[end].modify_qp(self.ends[end].qpn, &attr).unwrap();
    }

    pub fn to(&mut self, end: usize, state: QpState) {
        self.modify(end, QpAttr { state: Some(state), ..QpAttr::default() });
    }

    pub fn bytes(&self, mr: &Mr) -> &[u8] {
        self.net.nics.iter().find_map(|n| n.bytes(mr).filter(|b| b.as_ptr() as u64 == mr.addr)).unwrap()
    }

    /// Returns all memory that a peer could have written to.
    pub fn memory(&self) -> Vec<u8> {
        [&self.mem[0], &self.mem[1], &self.inbox[0], &self.inbox[1]]
            .iter()
            .flat_map(|mr| self.bytes(mr))
            .copied()
            .collect()
    }

    /// Injects a packet that the peer of `end` never sent, in the peer's name.
    pub fn inject(&mut self, end: usize, headers: Headers, payload: &[u8]) {
        let packet = RxPacket {
            headers: &headers,
            path: &path(1 - end, end),
            payload: Payload::Bytes(payload),
            arrived: self.net.now,
            sideband: Sideband::NONE,
        };
        self.net.nics[end].receive(self.net.now, &packet);
    }
}

pub fn completions(net: &mut Network, end: End) -> Vec<Wc> {
    let mut all = Vec::new();
    let mut wcs = [Wc::EMPTY; 64];
    while let Ok(n) = net.nics[end.nic].poll_cq(end.cq, &mut wcs)
        && n > 0
    {
        all.extend_from_slice(&wcs[..n]);
    }
    all
}

/// A signaled work request.
pub fn wr<'a>(wr_id: u64, op: SendOp, sges: &'a [Sge], remote: &Mr) -> SendWr<'a> {
    let data = SendData::Sges(if op.is_local() { &[] } else { sges });
    SendWr {
        wr_id,
        op,
        data,
        remote_addr: remote.addr,
        rkey: remote.rkey,
        signaled: true,
        solicited: false,
        fence: false,
        to: None,
        remote_srqn: 0,
    }
}

/// Every right, for regions made by a case.
pub const EVERYTHING: Access = ALL;
