//! Messages: what carries them, and what becomes of them.

mod gateways;
mod kannel;
mod spoilt;
mod tls;
