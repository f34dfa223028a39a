//! SMS: numbers, texts, the gateways that send, and the brake on prefixes whose codes do not come back.

pub mod brake;
pub mod gateway;
mod phone;
pub mod text;

pub use brake::{
    HeldBrake, Ladder, MOST_OF_AN_UNPROVEN_RANGE, PROVEN_OF_FIVE, PrefixTraffic, Rung, WHILE_PEOPLE_ARE_NEW,
    country_asks_from, lasts, most_of_a_network,
};
pub use gateway::{
    DeliveryReport, DeliveryResult, Gateways, OutOfService, Outbox, OutboxMessage, RefusedFor, ReportCall,
    ReportError, ReportState, ReportedMessage, SmsGateway, SmsMessage,
};
pub use phone::{Phone, PhoneError, UNKNOWN_COUNTRY};
