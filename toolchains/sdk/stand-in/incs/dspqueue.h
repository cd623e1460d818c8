/* The packet queue; results are a type of another header. */
#ifndef DSPQUEUE_H
#define DSPQUEUE_H

#include <stdint.h>
#include "AEEStdDef.h"
#include "AEEStdErr.h"

#define DSPQUEUE_TIMEOUT_NONE 0xffffffff

struct dspqueue;
typedef struct dspqueue *dspqueue_t;

enum dspqueue_packet_flags {
    DSPQUEUE_PACKET_FLAG_MESSAGE = 0x0001,
    DSPQUEUE_PACKET_FLAG_BUFFERS = 0x0002,
    DSPQUEUE_PACKET_FLAG_RESERVED_ALL = 0xffff0000,
};

enum dspqueue_buffer_flags {
    DSPQUEUE_BUFFER_FLAG_REF = 0x00000004,
    DSPQUEUE_BUFFER_FLAG_DEREF = 0x00000008,
    DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER = 0x00000010,
    DSPQUEUE_BUFFER_FLAG_INVALIDATE_SENDER = 0x00000020,
    DSPQUEUE_BUFFER_FLAG_FLUSH_RECIPIENT = 0x00000040,
    DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT = 0x00000080,
};

struct dspqueue_buffer {
    uint32_t fd;
    uint32_t size;
    uint32_t offset;
    uint32_t flags;
    union {
        void *ptr;
        uint64_t address;
    };
};

typedef void (*dspqueue_callback_t)(dspqueue_t queue, AEEResult error, void *context);

AEEResult dspqueue_create(int domain, uint32_t flags, uint32_t req_queue_size, uint32_t resp_queue_size,
                          dspqueue_callback_t packet_callback, dspqueue_callback_t error_callback, void *callback_context,
                          dspqueue_t *queue);
AEEResult dspqueue_close(dspqueue_t queue);
AEEResult dspqueue_export(dspqueue_t queue, uint64_t *queue_id);
AEEResult dspqueue_write(dspqueue_t queue, uint32_t flags, uint32_t num_buffers, struct dspqueue_buffer *buffers,
                         uint32_t message_length, const uint8_t *message, uint32_t timeout_us);
AEEResult dspqueue_read(dspqueue_t queue, uint32_t *flags, uint32_t max_buffers, uint32_t *num_buffers,
                        struct dspqueue_buffer *buffers, uint32_t max_message_length, uint32_t *message_length,
                        uint8_t *message, uint32_t timeout_us);
AEEResult dspqueue_read_noblock(dspqueue_t queue, uint32_t *flags, uint32_t max_buffers, uint32_t *num_buffers,
                                struct dspqueue_buffer *buffers, uint32_t max_message_length, uint32_t *message_length,
                                uint8_t *message);

#endif
