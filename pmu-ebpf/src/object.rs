//! Parts that every object needs: a licence, and a panic handler.

/// Licence that lets the kernel call the GPL-only helpers; the crate's licence is in Cargo.toml.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier rejects a program from which this can be reached.
    loop {}
}
