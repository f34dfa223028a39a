//! E-mail: addresses of accounts, codes and notices by mail, and the servers that take them.

mod addresses;
mod attacks;
mod checked;
pub mod console;
pub mod flows;
mod freezes;
mod outages;
pub mod pages;
mod proxy;
mod registration;
pub mod servers;
mod takeovers;
