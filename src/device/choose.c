/* run.device=auto: which device a run gets, and why, in words. */
#include <stdio.h>

#include "device/device.h"

static void because(tri_device_choice *choice, const char *kind, const char *why)
{
    choice->kind = kind;
    snprintf(choice->why, sizeof choice->why, "%s", why);
}

void tri_device_choose(const tri_device_offer *offer, tri_device_choice *choice)
{
    *choice = (tri_device_choice){.chosen = true};
    if (!offer->built && offer->driver) {
        because(choice, "cpu", "this trireme has no CUDA");
        snprintf(choice->hint, sizeof choice->hint,
                 "this machine has an NVIDIA GPU, but this trireme was %s",
                 tri_device_cuda_state());
    } else if (!offer->built || !offer->driver) {
        because(choice, "cpu", "no NVIDIA GPU here");
    } else if (offer->num_devices < 1) {
        because(choice, "cpu", "no GPU that CUDA can use");
        snprintf(choice->hint, sizeof choice->hint,
                 "this machine has an NVIDIA GPU, but none that can be used here; `trireme doctor` "
                 "says more, and run.device=cuda says why");
    } else if (offer->num_devices >= offer->local_ranks || offer->bound) {
        because(choice, "cuda", "");
    } else {
        snprintf(choice->why, sizeof choice->why,
                 "%d GPU%s for %d ranks; run.device=cuda lets ranks share %s", offer->num_devices,
                 offer->num_devices == 1 ? "" : "s", offer->local_ranks,
                 offer->num_devices == 1 ? "it" : "them");
        choice->kind = "cpu";
    }
}

tri_device_choice tri_device_choose_here(int num_ranks)
{
    const tri_device_def *cuda = tri_device_find("cuda");
    tri_device_offer offer = {
        .built = cuda != NULL, .driver = tri_device_gpu_driver(), .local_ranks = num_ranks};
    if (cuda && offer.driver)
        offer.num_devices = cuda->count();
    tri_device_choice choice;
    tri_device_choose(&offer, &choice);
    return choice;
}
