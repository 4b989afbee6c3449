//! What a connection says about its queue pair.

use irnic_transports::qp::QpAttr;

/// Attributes for one transition of an id's queue pair: what `rdma_init_qp_attr` returns. Those that are `Some` make up
/// the mask.
#[derive(Copy, Clone, Debug, Default)]
#[non_exhaustive]
pub struct QpAttributes {
    /// The attributes. The path is that of the address vector.
    pub attr: QpAttr,
    /// Flow label of the address vector, 20 bits.
    pub flow_label: u32,
}
