//! E-mail: addresses of accounts, codes and notices by mail, and the servers that take them.

mod addresses;
mod attacks;
mod console;
pub mod flows;
mod servers;
