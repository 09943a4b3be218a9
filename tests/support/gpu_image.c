#include "gpu_image.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    BORDER = 256, /* canaries on each side, and the alignment */
    CANARY = 0xA5,
    UNWRITTEN = 0xFF,
};

void gpu_image_init(gpu_image *im)
{
    *im = (gpu_image){.capacity = 1 << 20, .max_regions = 64};
    im->sent = malloc(im->capacity);
    im->regions = malloc((size_t)im->max_regions * sizeof *im->regions);
    assert(im->sent && im->regions);
}

void gpu_image_fini(gpu_image *im)
{
    free(im->sent);
    free(im->got);
    free(im->regions);
    *im = (gpu_image){0};
}

size_t gpu_image_place(gpu_image *im, size_t bytes, bool written)
{
    size_t at = im->used + BORDER, end = (at + bytes + BORDER + BORDER - 1) / BORDER * BORDER;
    while (end > im->capacity)
        im->capacity *= 2;
    if (im->num_regions == im->max_regions)
        im->max_regions *= 2;
    im->sent = realloc(im->sent, im->capacity);
    im->regions = realloc(im->regions, (size_t)im->max_regions * sizeof *im->regions);
    assert(im->sent && im->regions);
    memset(im->sent + im->used, CANARY, end - im->used);
    memset(im->sent + at, UNWRITTEN, bytes);
    im->regions[im->num_regions++] = (gpu_region){at, bytes, written};
    im->used = end;
    return at;
}

tr_status gpu_image_upload(const gpu_image *im, gpu_memory *memory, tri_device *device,
                           tr_error *err)
{
    if (im->used > memory->bytes) {
        gpu_memory_free(memory, device);
        memory->bytes = tri_device_round(im->used * 2);
        memory->data = device->def->alloc(memory->bytes);
        if (!memory->data)
            return tri_fail(err, TR_ERROR_RUNTIME, "the device has no %zu bytes", memory->bytes);
    }
    return device->def->queue->upload(device, memory->data, im->sent, im->used, err);
}

tr_status gpu_image_download(gpu_image *im, const gpu_memory *memory, tri_device *device,
                             tr_error *err)
{
    im->got = realloc(im->got, im->used);
    assert(im->got);
    TRI_TRY(device->def->queue->download(device, im->got, memory->data, im->used, err));
    return device->def->queue->finish(device, err);
}

bool gpu_image_kept(const gpu_image *im)
{
    for (int i = 0; i < im->num_regions; i++) {
        const gpu_region *r = &im->regions[i];
        size_t end = i + 1 < im->num_regions ? im->regions[i + 1].at : im->used;
        for (size_t b = r->at - BORDER; b < r->at; b++)
            if (im->got[b] != CANARY)
                return false;
        for (size_t b = r->at + r->bytes; b < end; b++)
            if (im->got[b] != CANARY)
                return false;
        if (!r->written && memcmp(im->got + r->at, im->sent + r->at, r->bytes) != 0)
            return false;
    }
    return true;
}

void gpu_memory_free(gpu_memory *memory, const tri_device *device)
{
    if (memory->data)
        device->def->free(memory->data, memory->bytes);
    *memory = (gpu_memory){0};
}
