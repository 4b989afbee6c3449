//! Unreliable connection: messages in order, whole or not at all; nobody is told of a loss (IBA 9.8.2).

mod requester;
mod responder;

use crate::psn::Psn;
use crate::qp::QpConfig;
use crate::room::OutOfMemory;
use requester::Requester;
use responder::Responder;

/// Both halves of an unreliable connection.
#[derive(Clone, Debug)]
pub(crate) struct Uc {
    pub requester: Requester,
    pub responder: Responder,
}

impl Uc {
    pub fn new(config: &QpConfig) -> Result<Uc, OutOfMemory> {
        Ok(Uc { requester: Requester::new(config)?, responder: Responder::new(config)? })
    }

    /// Forgets everything (RESET).
    pub fn reset(&mut self) {
        self.requester.reset();
        self.responder.rq.reset();
        self.responder.start(Psn::new(0));
    }
}
