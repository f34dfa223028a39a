//! No gateway: nothing is sent. No page or call that needs a code is there, so that it is not asked.

use super::{Delivery, Gateway, Message, Report, ReportCall, ReportError, SendFuture};

pub struct NoGateway;

impl Gateway for NoGateway {
    fn name(&self) -> &'static str {
        "none"
    }

    fn send<'a>(&'a self, _: Message<'a>) -> SendFuture<'a> {
        Box::pin(async { Delivery::Refused { reason: "sms.gateway is \"none\"".to_owned() } })
    }

    fn reports(&self, _: &ReportCall<'_>) -> Result<Vec<Report>, ReportError> {
        Err(ReportError::NotOffered)
    }
}
