//! Object for benchmarks of the cost of a program that only reads the clock. The product does not contain it.
#![no_std]
#![no_main]

mod clock;
mod object;
