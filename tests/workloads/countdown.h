// Machine code of a function that counts its argument down to zero, as a JIT compiler would write it.
#if defined(__x86_64__)
static const unsigned char code[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 }; // 1: dec rdi; jnz 1b; ret
#elif defined(__aarch64__)
static const unsigned int code[] = { 0xf1000400, 0x54ffffe1, 0xd65f03c0 }; // 1: subs x0,x0,1; b.ne 1b; ret
#endif
