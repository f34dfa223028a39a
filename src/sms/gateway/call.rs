//! One request to a gateway, and what its outcome means for the message: sent, not sent, or unknown.

use std::path::Path;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, Response, StatusCode};

use super::{DeliveryResult, OpenError};
use crate::https;

/// Longer than any gateway's answer.
const LONGEST_ANSWER: usize = 64 * 1024;
/// A connection that was idle for longer may be closed; a request on a closed one may have been processed.
const REST: Duration = Duration::from_secs(15);

/// Connections to a gateway, kept for the next message.
pub(super) struct GatewayClient {
    client: Client,
    timeout: Duration,
}

/// A gateway's whole answer.
pub(super) struct GatewayAnswer {
    pub status: StatusCode,
    pub body: Vec<u8>,
}

impl GatewayClient {
    /// `timeout` is for the whole message. Connecting may take a third of it and is tried twice, so that a
    /// call that runs out of time has had a connection.
    pub fn open(timeout: Duration, authorities: Option<&Path>) -> Result<Self, OpenError> {
        let refused = |wrong: https::ClientError| match wrong {
            https::ClientError::Authorities(reason) => {
                OpenError::Setting { field: "sms.http.ca_file", reason }
            }
            https::ClientError::Tls(reason) => OpenError::Tls(reason),
        };
        let builder = https::client(authorities).map_err(refused)?;
        let client = builder.connect_timeout(timeout / 3).pool_idle_timeout(REST).build();
        let client = client.map_err(|wrong| OpenError::Tls(wrong.without_url().to_string()))?;
        Ok(Self { client, timeout })
    }

    /// The gateway's answer, or what the lack of an answer means. `request` is repeated only if the first
    /// attempt never had a connection.
    pub async fn call(
        &self,
        request: impl Fn(&Client) -> RequestBuilder,
    ) -> Result<GatewayAnswer, DeliveryResult> {
        let whole = async {
            let mut answer = request(&self.client).send().await;
            if answer.as_ref().is_err_and(reqwest::Error::is_connect) {
                answer = request(&self.client).send().await;
            }
            match answer {
                Ok(response) => read(response).await,
                Err(wrong) if wrong.is_connect() => Err(refused("cannot be reached")),
                Err(wrong) if wrong.is_builder() => {
                    Err(refused("cannot be called: the request is not valid"))
                }
                Err(_) => Err(unknown("closed the connection without an answer")),
            }
        };
        // Tests cannot advance the clock of another machine, so this uses the runtime's timer.
        let answered = tokio::time::timeout(self.timeout, whole).await;
        answered.unwrap_or_else(|_| Err(unknown("did not answer in time")))
    }
}

impl GatewayAnswer {
    /// What a status other than success means, whatever else the answer says. After a server error or a
    /// redirect the message may have been sent.
    pub fn unless_success(&self, said: Option<&str>) -> Option<DeliveryResult> {
        let said = said.map(|code| format!(" ({code})")).unwrap_or_default();
        let reason = format!("answered {}{said}", self.status.as_u16());
        match self.status.as_u16() {
            200..300 => None,
            400..500 => Some(refused(&reason)),
            _ => Some(unknown(&reason)),
        }
    }
}

pub(super) fn refused(reason: &str) -> DeliveryResult {
    DeliveryResult::Refused { reason: format!("the gateway {reason}") }
}

pub(super) fn unknown(reason: &str) -> DeliveryResult {
    DeliveryResult::Unknown { reason: format!("the gateway {reason}") }
}

/// A gateway's own error word, if it has the form of one. Anything else it says may contain the number or the
/// code.
pub(super) fn word(text: &str) -> Option<String> {
    let form = |letter: u8| letter.is_ascii_alphanumeric() || b"._:-".contains(&letter);
    let short = (1..=64).contains(&text.len()) && text.bytes().all(form);
    // Six digits in a row may be the code, and more may be the number.
    let digits = text.split(|letter: char| !letter.is_ascii_digit()).all(|run| run.len() < 6);
    (short && digits).then(|| text.to_owned())
}

/// The gateway's id for a message, if it can be stored.
pub(super) fn reference(text: &str) -> Option<String> {
    let fits = (1..=64).contains(&text.len()) && text.bytes().all(|letter| letter.is_ascii_graphic());
    fits.then(|| text.to_owned())
}

/// Reads the whole body. A success that cannot be read is not one; otherwise the status is enough.
async fn read(mut response: Response) -> Result<GatewayAnswer, DeliveryResult> {
    let status = response.status();
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= LONGEST_ANSWER => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(GatewayAnswer { status, body }),
            Ok(Some(_)) if status.is_success() => return Err(unknown("sent an answer that is too long")),
            Err(_) if status.is_success() => {
                return Err(unknown("closed the connection before its answer was complete"));
            }
            Ok(Some(_)) | Err(_) => return Ok(GatewayAnswer { status, body: Vec::new() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_gateway_hold_no_number_and_no_code() {
        for plain in ["isv.BUSINESS_LIMIT_CONTROL", "21211", "VALVE:M_MC", "DELIVRD", "Throttling.User"] {
            assert_eq!(word(plain).as_deref(), Some(plain));
        }
        for spoken in ["", "your code is 123456", "123456", "+8613800138000", "x123456", "词"] {
            assert_eq!(word(spoken), None, "{spoken}");
        }
    }
}
