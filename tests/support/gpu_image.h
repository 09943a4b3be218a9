/* Memory of a device as the host sees it: regions between canaries, laid out in one image that goes
 * to the device as a whole and comes back as a whole, so that everything a kernel should not have
 * touched can be looked at. */
#ifndef TRI_TESTS_GPU_IMAGE_H
#define TRI_TESTS_GPU_IMAGE_H

#include "device/device.h"

typedef struct gpu_region {
    size_t at, bytes;
    bool written; /* may change */
} gpu_region;

typedef struct gpu_image {
    unsigned char *sent, *got;
    size_t used, capacity;
    gpu_region *regions;
    int num_regions, max_regions;
} gpu_image;

/* Where images lie on the device, one at a time; grows as needed. Starts as zeros. */
typedef struct gpu_memory {
    unsigned char *data;
    size_t bytes;
} gpu_memory;

void gpu_image_init(gpu_image *im);
void gpu_image_fini(gpu_image *im);
/* Room for a region, at a multiple of 256 bytes; what is sent there is all ones until set. */
size_t gpu_image_place(gpu_image *im, size_t bytes, bool written);
tr_status gpu_image_upload(const gpu_image *im, gpu_memory *memory, tri_device *device,
                           tr_error *err);
/* Waits for what was enqueued before. */
tr_status gpu_image_download(gpu_image *im, const gpu_memory *memory, tri_device *device,
                             tr_error *err);
/* After a download: canaries are whole, and regions that are not to be written are as sent. */
bool gpu_image_kept(const gpu_image *im);
void gpu_memory_free(gpu_memory *memory, const tri_device *device);

#endif
