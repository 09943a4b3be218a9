/* run.device=auto, for every kind of machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "device/device.h"

static void auto_takes_the_gpu_only_where_each_rank_has_one(void **state)
{
    (void)state;
    static const struct {
        tri_device_offer offer;
        const char *kind, *why, *hint;
    } cases[] = {
        {{.built = false, .driver = false, .local_ranks = 1}, "cpu", "no NVIDIA GPU here", ""},
        {{.built = true, .driver = false, .local_ranks = 1}, "cpu", "no NVIDIA GPU here", ""},
        {{.built = false, .driver = true, .local_ranks = 1}, "cpu", "has no CUDA", "built with"},
        {{.built = true, .driver = true, .num_devices = 0, .local_ranks = 1},
         "cpu",
         "no GPU that CUDA can use",
         "trireme doctor"},
        {{.built = true, .driver = true, .num_devices = 1, .local_ranks = 1}, "cuda", "", ""},
        {{.built = true, .driver = true, .num_devices = 8, .local_ranks = 8}, "cuda", "", ""},
        {{.built = true, .driver = true, .num_devices = 2, .local_ranks = 4},
         "cpu",
         "2 GPUs for 4 ranks; run.device=cuda lets ranks share them",
         ""},
        {{.built = true, .driver = true, .num_devices = 1, .local_ranks = 4},
         "cpu",
         "1 GPU for 4 ranks; run.device=cuda lets ranks share it",
         ""},
        {{.built = true, .driver = true, .num_devices = 1, .local_ranks = 4, .bound = true},
         "cuda",
         "",
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tri_device_choice choice;
        tri_device_choose(&cases[i].offer, &choice);
        assert_true(choice.chosen);
        assert_string_equal(choice.kind, cases[i].kind);
        if (!strstr(choice.why, cases[i].why) || !*cases[i].why != !*choice.why)
            fail_msg("case %zu says \"%s\"", i, choice.why);
        if (!strstr(choice.hint, cases[i].hint) || !*cases[i].hint != !*choice.hint)
            fail_msg("case %zu hints \"%s\"", i, choice.hint);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_takes_the_gpu_only_where_each_rank_has_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
