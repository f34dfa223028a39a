//! A gateway and a list of owners that do what the test says, and record their calls.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use gatehouse::clock::Micros;
use gatehouse::codes::*;
use gatehouse::config::ResetByMail;
use gatehouse::db::DbError;
use gatehouse::message::*;
use gatehouse::sms::*;
use tokio::sync::Semaphore;

/// What the gateway does with a message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Accepts,
    Refuses,
    DoesNotKnow,
    /// Until it is released.
    Hangs,
    Panics,
}

/// Records what it is given.
pub struct CountingGateway {
    pub mood: Mutex<Mood>,
    pub sent: Mutex<Vec<SentMessage>>,
    pub let_go: Semaphore,
}

#[derive(Clone)]
pub struct SentMessage {
    pub id: MessageId,
    pub phone: Phone,
    pub code: MessageCode,
    pub text: String,
}

impl SmsGateway for CountingGateway {
    fn name(&self) -> &'static str {
        "outbox"
    }

    fn send<'a>(
        &'a self,
        message: SmsMessage<'a>,
    ) -> Pin<Box<dyn Future<Output = DeliveryResult> + Send + 'a>> {
        let SmsMessage { id, phone, code, text } = message;
        let (phone, code) = (phone.clone(), code.clone());
        self.sent.lock().unwrap().push(SentMessage { id, phone, code, text: text.to_owned() });
        let mood = *self.mood.lock().unwrap();
        Box::pin(async move {
            match mood {
                Mood::Accepts => DeliveryResult::Accepted { reference: Some(format!("ref-{id}")) },
                Mood::Refuses => {
                    DeliveryResult::Refused { reason: "told to".into(), whose: RefusedFor::ThisMessage }
                }
                Mood::DoesNotKnow => DeliveryResult::Unknown { reason: "told to".into() },
                Mood::Hangs => {
                    self.let_go.acquire().await.unwrap().forget();
                    DeliveryResult::Accepted { reference: None }
                }
                Mood::Panics => panic!("told to"),
            }
        })
    }

    fn reports(&self, _: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        Err(ReportError::NotOffered)
    }
}

/// The numbers with accounts and since when, and how often it was asked.
#[derive(Default)]
pub struct Book {
    numbers: Mutex<HashMap<Phone, Micros>>,
    pub asked: AtomicU32,
    pub out: AtomicBool,
}

impl Book {
    pub fn has(&self, phone: &Phone, since: Micros) {
        self.numbers.lock().unwrap().insert(phone.clone(), since);
    }
}

impl RecipientOwners for Book {
    fn since<'a>(
        &'a self,
        recipient: &'a Recipient,
        _: ResetByMail,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Micros>, DbError>> + Send + 'a>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let out = self.out.load(Ordering::SeqCst);
        let since = recipient.phone().and_then(|phone| self.numbers.lock().unwrap().get(phone).copied());
        Box::pin(async move { if out { Err(sqlx::Error::PoolClosed.into()) } else { Ok(since) } })
    }
}
