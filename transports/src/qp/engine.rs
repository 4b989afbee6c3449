//! What a queue pair keeps for its service, and what all services have.

use super::common::Common;
use super::host::Host;
use super::recv_queue::RecvQueue;
use super::send_queue::SendQueue;
use super::work::WcStatus;
use crate::rc::Rc;
use crate::uc::Uc;
use crate::ud::Ud;

/// What each service keeps.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // a queue pair lives in a box of its own, and most are reliable
pub(super) enum Engine {
    Rc(Rc),
    Uc(Uc),
    Ud(Ud),
}

impl Engine {
    pub fn send_queue(&self) -> &SendQueue {
        match self {
            Engine::Rc(rc) => &rc.requester.sq,
            Engine::Uc(uc) => &uc.requester.sq,
            Engine::Ud(ud) => &ud.sq,
        }
    }

    #[inline]
    pub fn send_queue_mut(&mut self) -> &mut SendQueue {
        match self {
            Engine::Rc(rc) => &mut rc.requester.sq,
            Engine::Uc(uc) => &mut uc.requester.sq,
            Engine::Ud(ud) => &mut ud.sq,
        }
    }

    pub fn recv_queue(&self) -> &RecvQueue {
        match self {
            Engine::Rc(rc) => &rc.responder.rq,
            Engine::Uc(uc) => &uc.responder.rq,
            Engine::Ud(ud) => &ud.rq,
        }
    }

    #[inline]
    pub fn recv_queue_mut(&mut self) -> &mut RecvQueue {
        match self {
            Engine::Rc(rc) => &mut rc.responder.rq,
            Engine::Uc(uc) => &mut uc.responder.rq,
            Engine::Ud(ud) => &mut ud.rq,
        }
    }

    /// Whether a send work request is under way.
    pub fn busy(&self) -> bool {
        match self {
            Engine::Rc(rc) => rc.requester.busy(),
            Engine::Uc(uc) => uc.requester.busy(),
            Engine::Ud(_) => false,
        }
    }

    pub fn flush_send(&mut self, c: &Common, status: WcStatus, host: &mut impl Host) {
        match self {
            Engine::Rc(rc) => rc.requester.flush(c, status, host),
            Engine::Uc(uc) => uc.requester.flush(c, status, host),
            Engine::Ud(ud) => ud.sq.flush(c, status, host),
        }
    }
}
