//! Access rights to memory.

/// Access rights to memory, local and remote. The values are libibverbs' `IBV_ACCESS_*`.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Access(pub u32);

impl Access {
    /// The NIC may write there for its own application (receives, READ results).
    pub const LOCAL_WRITE: Access = Access(1);
    /// Peers may WRITE.
    pub const REMOTE_WRITE: Access = Access(2);
    /// Peers may READ.
    pub const REMOTE_READ: Access = Access(4);
    /// Peers may use atomics.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// All of the above: the rights to read and write, the NIC's own and those that a queue pair can grant its peer.
    pub const ALL: Access = Access(15);
    /// Memory windows may be bound to the region.
    pub const MW_BIND: Access = Access(0x10);
    /// Peers may have WRITEs made globally visible to all readers of the region (FLUSH).
    pub const FLUSH_GLOBAL: Access = Access(0x100);
    /// Peers may have WRITEs made persistent (FLUSH). Never granted: process memory is not persistent.
    pub const FLUSH_PERSISTENT: Access = Access(0x200);
    /// Addresses count from 0, the first byte.
    pub const ZERO_BASED: Access = Access(0x20);

    /// Returns whether all of `other`'s rights are among these.
    #[inline]
    pub fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Access;
    fn bitor(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }
}
