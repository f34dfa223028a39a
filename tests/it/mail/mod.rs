//! E-mail: addresses of accounts, codes and notices by mail, and the servers that take them.

mod addresses;
mod attacks;
pub mod flows;
mod outages;
mod proxy;
mod servers;
mod takeovers;
