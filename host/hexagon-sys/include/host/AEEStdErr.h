// Error numbers that calls give on the host and that its code asks for by name. What the others mean is in
// host/src/transport/aee/table.rs.
#pragma once

#define AEE_SUCCESS 0
#define AEE_EFAILED 0x001
#define AEE_ENOMEMORY 0x002
#define AEE_EUNABLETOLOAD 0x006
#define AEE_EEXPIRED 0x00C
#define AEE_EBADSTATE 0x00D
#define AEE_EBADPARM 0x00E
#define AEE_EUNSUPPORTED 0x014
#define AEE_EALREADY 0x01A
#define AEE_EITEMBUSY 0x020
#define AEE_EINVALIDDOMAIN 0x039
#define AEE_EINVALIDFD 0x03A
#define AEE_ENOSUCHMAP 0x048
#define AEE_EBADSIZE 0x04D
#define AEE_EUNSUPPORTEDAPI 0x06C
#define AEE_ECONNREFUSED 0x072
#define AEE_ENOSESSION 0x08A
#define AEE_ERPC 0x200
#define AEE_ENOSUCH 39
#define AEE_EINTERRUPTED 46
#define AEE_ECONNRESET 104
#define AEE_EWOULDBLOCK 516
