// Types that the other headers of this folder share. Names are those that the DSP's system software uses; the text is ours.
#pragma once

typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __INT32_TYPE__ int32_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;

/// 0, or one of the `AEE_*` numbers.
typedef int32_t AEEResult;

/// Done.
#define AEE_SUCCESS 0
/// Failed for no reason that has a number.
#define AEE_EFAILED 1
/// No memory.
#define AEE_ENOMEMORY 2
/// A wait has reached its end.
#define AEE_EEXPIRED 12
/// A call at the wrong time.
#define AEE_EBADSTATE 13
/// A bad argument.
#define AEE_EBADPARM 14
/// In use already.
#define AEE_EITEMBUSY 32
/// Nothing there, and the call was told not to wait.
#define AEE_EWOULDBLOCK 516
/// What the DSP's side adds to the numbers above in some calls.
#define AEE_DSP_OFFSET 0x80000400u
