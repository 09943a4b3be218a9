/* Every setting of Trireme. The columns are those of tri_setting: name, type, default, range,
 * choices, help, other names for it. The last column only feeds "did you mean": it holds what other
 * trainers call the same thing, so that a newcomer's first guess leads here. */
#include "config/settings_table.h"

#include <stddef.h>

#define BILLION 1e9
#define TWO_53  9007199254740992.0 /* the largest seed: every integer up to it is exact in JSON */

#define BOOL(name, fallback, help, also)                                                           \
    {                                                                                              \
        name, TRI_SETTING_BOOL, fallback, 0, 1, NULL, help, also                                   \
    }
#define INT(name, fallback, min, max, help, also)                                                  \
    {                                                                                              \
        name, TRI_SETTING_INT, fallback, min, max, NULL, help, also                                \
    }
#define FLOAT(name, fallback, min, max, help, also)                                                \
    {                                                                                              \
        name, TRI_SETTING_FLOAT, fallback, min, max, NULL, help, also                              \
    }
#define STRING(name, fallback, help, also)                                                         \
    {                                                                                              \
        name, TRI_SETTING_STRING, fallback, 0, 0, NULL, help, also                                 \
    }
#define CHOICE(name, fallback, choices, help, also)                                                \
    {                                                                                              \
        name, TRI_SETTING_CHOICE, fallback, 0, 0, choices, help, also                              \
    }

const tri_section tri_sections[] = {
    {"model", "what is trained"},
    {"data", "what it is trained on"},
    {"train", "how long, how much at a time, and how it is watched"},
    {"optim", "how weights follow gradients"},
    {"layout", "how the work is divided"},
    {"precision", "the numbers it computes in"},
    {"run", "where and with what it runs"},
    {"generate", "text out of a trained model"},
};
const int tri_num_sections = sizeof tri_sections / sizeof *tri_sections;

const tri_setting tri_settings_table[] = {
    CHOICE("model.kind", "gpt2", "mlp, gpt2, llama", "Architecture",
           "type arch architecture model_type"),
    STRING("model.preset", "",
           "Name of a known model whose sizes are filled in where none are given",
           "name size config"),
    INT("model.num_layers", "4", 1, 1000, "Blocks of a gpt2, pairs of linear layers of an mlp",
        "n_layer n_layers layer layers depth num_hidden_layers num_blocks"),
    INT("model.dim", "64", 1, 1000000, "Width of the residual stream",
        "n_embd d_model hidden_size hidden hidden_dim width embed_dim"),
    INT("model.num_heads", "4", 1, 10000, "Attention heads; must divide model.dim",
        "n_head n_heads heads num_attention_heads attention_heads"),
    INT("model.num_kv_heads", "0", 0, 10000,
        "Heads of keys and values, shared by groups of heads (llama); 0 is as many as heads",
        "num_key_value_heads n_kv_heads n_head_kv kv_heads gqa"),
    INT("model.head_dim", "0", 0, 100000, "Width of a head (llama); 0 is model.dim / num_heads",
        "d_head d_kv head_size"),
    INT("model.ffn_dim", "0", 0, 10000000,
        "Width of the feed-forward layer; 0 is four times model.dim",
        "ffn d_ff n_inner intermediate_size mlp_dim hidden_ffn"),
    INT("model.vocab", "0", 0, BILLION, "Size of the vocabulary; 0 is what the data needs",
        "vocab_size n_vocab padded_vocab_size"),
    INT("model.positions", "0", 0, BILLION,
        "Size of the table of learned positions; 0 is data.seq_len",
        "n_positions max_position_embeddings n_ctx max_seq_len"),
    FLOAT("model.dropout", "0", 0, 0.95, "Probability of dropping an activation during training",
          "resid_pdrop attn_pdrop embd_pdrop p_dropout"),
    BOOL("model.bias", "true", "Bias terms in linear layers (mlp)", "use_bias"),
    CHOICE("model.act", "gelu", "none, relu, gelu",
           "Activation between the two layers of a pair (mlp)",
           "activation activation_function hidden_act nonlinearity"),
    CHOICE("model.loss", "mse", "sse, mse, mean",
           "Loss (mlp): sum or mean of squared errors, or the mean of the output",
           "loss_fn criterion objective"),
    FLOAT("model.init_std", "0.02", 0, 10, "Standard deviation of the initial weights",
          "initializer_range std init init_scale"),
    FLOAT("model.norm_eps", "1e-5", 0, 1, "Added to the variance in norms (llama)",
          "rms_norm_eps layer_norm_eps layernorm_epsilon eps"),
    BOOL("model.tied_head", "false", "The head shares the token table (llama; gpt2 always does)",
         "tie_word_embeddings tie_embeddings weight_tying"),
    BOOL("model.qkv_bias", "false", "Biases on query, key and value (llama; as in Qwen 2)",
         "attention_bias use_qkv_bias"),
    BOOL("model.qk_norm", "false", "Norms on each query and key (llama; as in Qwen 3)",
         "use_qk_norm qk_layernorm"),
    INT("model.window", "0", 0, BILLION,
        "Positions that attention looks back, itself included (llama; as in Mistral); 0 is all",
        "sliding_window local_attention window_size"),
    FLOAT("model.rope_theta", "10000", 1, 1e12, "Base of the rotary frequencies (llama)",
          "rotary_base rope_base rotary_emb_base theta"),
    FLOAT("model.rope_factor", "0", 0, 1000,
          "Stretches low rotary frequencies, as Llama 3.1 does; 0 is off", "rope_scaling"),
    FLOAT("model.rope_low", "1", 0, 1000, "Llama 3.1's low_freq_factor", "low_freq_factor"),
    FLOAT("model.rope_high", "4", 0, 1000, "Llama 3.1's high_freq_factor", "high_freq_factor"),
    INT("model.rope_original", "8192", 1, BILLION,
        "Positions before the stretching (Llama 3.1's original_max_position_embeddings)",
        "original_max_position_embeddings"),
    STRING("model.from", "",
           "Weights to start from: a safetensors file, a run directory or a Hugging Face directory",
           "checkpoint weights init_from pretrained load"),

    STRING("data.source", "synthetic",
           "A text file or directory, or synthetic: random tokens with a pattern to learn",
           "path file files dir dataset corpus text train_data"),
    INT("data.seq_len", "64", 1, 1000000, "Tokens in a sequence",
        "block_size context context_length seq sequence_length max_length seqlen"),
    FLOAT("data.eval_fraction", "0.05", 0, 0.5, "Tail of the text that is kept for evaluation",
          "val_fraction validation_split eval_split test_split val_split"),

    INT("train.batch", "8", 1, 1000000, "Sequences in a step, over all ranks and micro-batches",
        "batch_size global_batch_size global_batch bs"),
    INT("train.steps", "100", 0, BILLION, "Optimizer steps",
        "max_steps iterations iters max_iters num_steps train_iters epochs total_steps"),
    FLOAT("train.clip", "1", 0, BILLION,
          "Largest norm of the gradient, above which it is scaled down; 0 is off",
          "grad_clip clip_grad max_grad_norm gradient_clipping clip_norm"),
    INT("train.eval_every", "0", 0, BILLION,
        "Steps between evaluations on held-out data; 0 is only at the end",
        "eval_interval eval_steps val_every val_interval eval_freq"),
    INT("train.eval_batches", "8", 1, 1000000, "Batches in an evaluation",
        "eval_iters val_batches val_max_steps"),
    INT("train.log_every", "10", 1, BILLION,
        "Steps between lines when the output is not a terminal",
        "log_interval logging_steps log_freq print_every"),

    CHOICE("optim.kind", "adamw", "sgd, adam, adamw, muon", "Update rule",
           "optimizer optimiser type name algorithm"),
    FLOAT("optim.lr", "3e-4", 0, 1000, "Highest learning rate",
          "learning_rate max_lr base_lr step_size"),
    FLOAT("optim.beta1", "0.9", 0, 0.9999, "Decay of the first moment (adam, adamw)",
          "adam_beta1 b1 betas"),
    FLOAT("optim.beta2", "0.95", 0, 0.99999, "Decay of the second moment (adam, adamw)",
          "adam_beta2 b2"),
    FLOAT("optim.eps", "1e-8", 0, 1, "Added to the root of the second moment (adam, adamw)",
          "epsilon adam_epsilon adam_eps"),
    FLOAT("optim.weight_decay", "0.1", 0, 10,
          "Share of a weight, times the learning rate, taken off each step", "wd decay l2"),
    FLOAT("optim.momentum", "0.9", 0, 0.9999,
          "Momentum (sgd, muon; muon takes 0.95 when none is given)", "mu"),
    BOOL("optim.nesterov", "false", "Look-ahead momentum (sgd)", "nag"),
    CHOICE("optim.schedule", "constant", "constant, linear, cosine, wsd",
           "Learning rate over the steps, after the warm-up",
           "lr_schedule scheduler lr_scheduler lr_scheduler_type lr_decay_style decay_lr"),
    INT("optim.warmup_steps", "0", 0, BILLION,
        "Steps over which the learning rate rises to optim.lr",
        "warmup warmup_iters warm_up lr_warmup_iters"),
    INT("optim.decay_steps", "0", 0, BILLION,
        "Steps of the final decay (wsd); 0 is a fifth of train.steps",
        "lr_decay_iters decay_iters cooldown_steps cooldown"),
    FLOAT("optim.min_lr_ratio", "0", 0, 1, "Learning rate at the end, as a share of optim.lr",
          "min_lr final_lr_ratio min_lr_rate final_lr_frac"),
    STRING("optim.groups", "",
           "Groups of parameters with settings of their own, such as "
           "[\"wte.* lr_scale=0.5 weight_decay=0\"]",
           "param_groups parameter_groups"),

    INT("layout.dp", "1", 1, 100000, "Data-parallel ranks: each computes its part of every batch",
        "data_parallel ddp dp_size world_size num_gpus nproc_per_node replicas"),
    INT("layout.microbatches", "1", 1, 100000, "Parts a batch is computed in, one after the other",
        "grad_accum gradient_accumulation_steps accumulation micro_batches accum_steps num_micro "
        "microbatch"),
    BOOL("layout.split_backward", "false",
         "Compute gradients of activations (I) and of weights (W) one after the other, not "
         "interleaved",
         "zero_bubble split_bw"),

    CHOICE("precision.kind", "fp32", "fp32, tf32, bf16",
           "Number format of activations and matrix products; parameters stay fp32, with 16-bit "
           "copies for bf16; tf32 rounds the operands of fp32 products (cuda)",
           "dtype type amp mixed_precision bf16"),
    CHOICE("precision.grad", "fp32", "fp32, compute",
           "Number format of accumulated gradients: fp32, or that of precision.kind",
           "grad_dtype gradient_dtype reduce_dtype accumulate_allreduce_grads_in_fp32"),

    STRING("run.dir", "runs/latest", "Directory for settings, metrics, weights and traces",
           "out_dir output_dir output out save_dir logdir"),
    INT("run.seed", "1", 0, TWO_53, "Seed of initial weights, dropout and data order",
        "random_seed manual_seed rng"),
    INT("run.threads", "0", 0, 1024, "Threads of a rank; 0 is all cores",
        "num_threads workers num_workers cpus cores nproc"),
    CHOICE("run.device", "cpu", "cpu, cuda, null",
           "Where it computes; null goes through the motions without computing",
           "backend accelerator"),
    CHOICE(
        "run.transport", "auto", "auto, shm, tcp, mpi, thread",
        "How ranks exchange data: shared memory, TCP, MPI, or as threads of one process; auto is "
        "shared memory on one machine, and between several MPI under mpirun, else TCP",
        "comm comm_backend dist_backend distributed_backend"),
    STRING("run.collective", "auto",
           "Algorithm of the sums over ranks, such as ring, rabenseifner, torus2d:8x4, or MPI's "
           "own, native; auto chooses by size",
           "collective_algorithm allreduce algo nccl_algo algorithm"),
    FLOAT("run.deadline_s", "60", 0.1, 86400,
          "Longest time a rank waits for another before the run is stopped, in seconds",
          "timeout deadline timeout_s dist_timeout ddp_timeout watchdog"),
    CHOICE("run.isa", "auto", "auto, base, avx2, avx512",
           "Instruction set of the fast kernels; auto is the best this processor has", "simd arch"),
    CHOICE("run.kernels", "fast", "fast, reference",
           "Kernels: fast ones, or the portable ones that define the right answer", "kernel"),
    BOOL("run.trace", "false", "Write trace.json, a timeline that opens in Perfetto",
         "profile profiler timeline"),
    BOOL("run.save", "true", "Write the weights at the end", "save_model always_save_checkpoint"),

    STRING("generate.prompt", "", "Text to continue", "start text input"),
    INT("generate.tokens", "200", 0, 1000000, "Tokens to generate",
        "max_new_tokens max_tokens num_tokens length n"),
    FLOAT("generate.temperature", "0.8", 0, 100,
          "Spread of the choice of tokens; 0 always takes the likeliest", "temp"),
    INT("generate.top_k", "0", 0, 1000000,
        "Choose among this many likeliest tokens; 0 is all of them", "topk k"),
    INT("generate.seed", "1", 0, TWO_53, "Seed of the choice of tokens", NULL),
};
const int tri_num_settings = sizeof tri_settings_table / sizeof *tri_settings_table;
