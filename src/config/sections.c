/* The sections of a recipe, in the order in which they are printed. */
#include "config/settings_table.h"

const tri_section tri_sections[] = {
    {"model", "what is trained"},
    {"data", "what it is trained on"},
    {"train", "how long, how much at a time, and how it is watched"},
    {"optim", "how weights follow gradients"},
    {"layout", "how the work is divided"},
    {"precision", "the numbers it computes in"},
    {"run", "where and with what it runs"},
    {"ckpt", "saving the state of a run, and going on from it"},
    {"generate", "text out of a trained model"},
};
const int tri_num_sections = sizeof tri_sections / sizeof *tri_sections;
