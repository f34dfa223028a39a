//! No gateway: nothing is sent. The pages and calls that need a code do not exist, so it is never called.

use super::{DeliveryReport, DeliveryResult, ReportCall, ReportError, SendFuture, SmsGateway, SmsMessage};

pub struct NoGateway;

impl SmsGateway for NoGateway {
    fn name(&self) -> &'static str {
        "none"
    }

    fn send<'a>(&'a self, _: SmsMessage<'a>) -> SendFuture<'a> {
        Box::pin(async { DeliveryResult::Refused { reason: "sms.gateway is \"none\"".to_owned() } })
    }

    fn reports(&self, _: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        Err(ReportError::NotOffered)
    }
}
