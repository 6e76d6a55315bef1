//! An object for benches: what a program costs that looks at the clock and does nothing else. The product holds none of it.
#![no_std]
#![no_main]

mod clock;
mod object;
