//! Messages: what carries them, and what becomes of them.

mod gateways;
mod kannel;
mod providers;
mod spoilt;
mod tls;
