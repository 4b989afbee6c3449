//! Traffic between hosts.

/// Traffic from one host to another.
#[derive(Copy, Clone, Debug, Default)]
pub struct Pair {
    /// Frames sent, and frames that arrived.
    pub sent: u64,
    pub arrived: u64,
    /// Bytes that arrived, BTH to ICRC.
    pub bytes: u64,
    /// Times at which the first one left, and the last one arrived, ns.
    pub first: u64,
    pub last: u64,
}

/// All pairs of hosts.
pub struct Pairs {
    hosts: u32,
    /// By source, sized for the destinations used.
    of: Vec<Vec<Pair>>,
}

impl Pairs {
    pub fn new(hosts: u32) -> Pairs {
        Pairs { hosts, of: vec![Vec::new(); hosts as usize] }
    }

    #[inline]
    fn of(&mut self, src: u32, dst: u32) -> &mut Pair {
        let row = &mut self.of[src as usize];
        if row.is_empty() {
            row.resize(self.hosts as usize, Pair::default());
        }
        &mut row[dst as usize]
    }

    /// Counts a frame that begins to leave at `at`, ns.
    #[inline]
    pub fn sent(&mut self, src: u32, dst: u32, at: u64) {
        let pair = self.of(src, dst);
        if pair.sent == 0 {
            pair.first = at;
        }
        pair.sent += 1;
    }

    /// Counts a frame of this many bytes that has arrived at `at`, ns.
    #[inline]
    pub fn arrived(&mut self, src: u32, dst: u32, at: u64, bytes: usize) {
        let pair = self.of(src, dst);
        pair.arrived += 1;
        pair.bytes += bytes as u64;
        pair.last = at;
    }

    /// Returns the pairs with any traffic: source, destination, and counters.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, &Pair)> {
        let rows = (0..).zip(&self.of);
        rows.flat_map(|(src, row)| {
            (0..).zip(row).filter(|(_, pair)| pair.sent > 0).map(move |(dst, pair)| (src, dst, pair))
        })
    }
}
