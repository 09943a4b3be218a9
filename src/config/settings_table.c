/* The settings that all runs have, and the table of all: models, update rules and schedules bring
 * their own. The columns are those of tri_setting: name, type, default, range, choices, help, other
 * names for it. */
#include "config/settings_table.h"

#include <assert.h>

#include "config/owners.h"
#include "config/plugins.h"
#include "mesh/mesh.h"

#define TWO_53 9007199254740992.0 /* the largest seed: every integer up to it is exact in JSON */

/* Short here, where there are so many. */
#define BOOL    TRI_BOOL_ROW
#define INT     TRI_INT_ROW
#define FLOAT   TRI_FLOAT_ROW
#define TYPED   TRI_TYPED_ROW
#define LOADED  TRI_LOADED_ROW
#define STRING  TRI_STRING_ROW
#define CHOICE  TRI_CHOICE_ROW
#define BILLION TRI_BILLION

static const tri_setting common[] = {
    STRING("model.preset", "",
           "Name of a known model whose sizes are filled in where none are given", "name size"),
    CHOICE("model.task", "lm", "lm, mlm, classify",
           "What it learns: the next token (lm), masked tokens (mlm), or a label for each row "
           "(classify); a bert takes mlm when none is given",
           "objective head problem_type"),
    INT("model.num_labels", "2", 2, 1000000, "Labels to tell apart (model.task=classify)",
        "num_classes n_classes classes labels"),
    INT("model.num_layers", "4", 1, 1000, "Blocks, or pairs of linear layers of an mlp",
        "n_layers layer layers depth num_blocks"),
    INT("model.dim", "64", 1, 1000000, "Width of the residual stream",
        "d_model hidden hidden_dim width embed_dim"),
    INT("model.num_heads", "4", 1, 10000, "Attention heads; must divide model.dim",
        "n_heads heads attention_heads"),
    INT("model.num_kv_heads", "0", 0, 10000,
        "Heads of keys and values, shared by groups of heads (llama); 0 is as many as heads",
        "n_kv_heads n_head_kv kv_heads gqa"),
    INT("model.head_dim", "0", 0, 100000, "Width of a head (llama); 0 is model.dim / num_heads",
        "d_head d_kv head_size"),
    INT("model.ffn_dim", "0", 0, 10000000,
        "Width of the feed-forward layer; 0 is four times model.dim",
        "ffn d_ff n_inner mlp_dim hidden_ffn"),
    INT("model.vocab", "0", 0, BILLION, "Size of the vocabulary; 0 is what the data needs",
        "n_vocab padded_vocab_size"),
    INT("model.positions", "0", 0, BILLION,
        "Size of the table of learned positions; 0 is data.seq_len",
        "n_positions n_ctx max_seq_len"),
    FLOAT("model.dropout", "0", 0, 0.95, "Probability of dropping an activation during training",
          "p_dropout"),
    INT("model.loss_tile", "0", 0, BILLION,
        "Tokens of a row whose logits exist at a time, at most; the same loss in less memory. 0 is "
        "all of them",
        "loss_chunk loss_chunk_size num_output_chunks chunked_cross_entropy "
        "fused_linear_cross_entropy"),
    FLOAT("model.init_std", "0.02", 0, 10, "Standard deviation of the initial weights",
          "std init init_scale"),
    STRING("model.from", "",
           "Weights to start from: a safetensors file, a run directory, a checkpoint or a Hugging "
           "Face directory",
           "checkpoint weights pretrained load"),

    STRING("data.source", "synthetic",
           "Text, tokens of `trireme data prepare`, several with weights such as a:0.7,b:0.3, or "
           "synthetic: random tokens with a pattern to learn",
           "path file files dir corpus text train_data blend mixture"),
    STRING(
        "data.tokenizer", "",
        "What turns text into tokens: a tokenizer.json, a directory with one, bytes, or made from "
        "the text: chars, bpe:4096; empty is that of a Hugging Face model.from, else bytes",
        "tokenizer_path"),
    STRING("data.field", "text", "Where the text is in JSONL",
           "text_column text_field text_key content_key json_keys"),
    INT("data.seq_len", "64", 1, 1000000, "Tokens in a sequence",
        "context context_length seq sequence_length max_length seqlen"),
    INT("data.samples", "0", 0, BILLION,
        "Rows of the made-up data of model.task=classify; 0 is no end of them",
        "num_samples n_samples num_examples train_samples dataset_size"),
    FLOAT("data.eval_fraction", "0.05", 0, 0.5,
          "Tail of the text that is kept for evaluation; tokens prepared with a part for it keep "
          "that",
          "val_fraction validation_split eval_split test_split val_split"),
    BOOL("data.mask_documents", "false",
         "Attention stays within a document, and positions begin again with each",
         "document_mask doc_mask intra_document_masking"),
    CHOICE("data.task", "auto", "auto, lm, mlm, classify, instruct",
           "What rows are made for: the next token (lm), masked tokens (mlm), a label each "
           "(classify), answers to instructions (instruct); auto is what model.task says",
           "format objective dataset_type"),
    STRING("data.pair_field", "", "Field with a second text (classify); none is single texts",
           "text_pair sentence2 hypothesis second_field"),
    STRING("data.label_field", "label", "Field with the label, a text or a number (classify)",
           "label_column label_key target_field"),
    STRING("data.labels", "",
           "Names of the labels in order, such as [negative, positive] (classify); none is those "
           "that the data has",
           "label_names classes id2label"),
    STRING("data.answer_field", "output", "Field with the answer (instruct)",
           "output_field response_field completion response_column"),
    STRING("data.template", "alpaca",
           "Prompt with the {field}s of an example and the answer's, such as "
           "\"Q: {question}\\nA: {output}\" (instruct); alpaca is that of the Alpaca data",
           "prompt_template chat_template prompt_format"),
    STRING("data.template_input", "",
           "Prompt for examples with a field \"input\" that is not empty (instruct); none is "
           "data.template",
           NULL),
    BOOL("data.pack", "false",
         "Put several documents (lm, mlm) or examples (instruct) into a row, each seeing itself "
         "only; without it, rows of lm are cut from one long text",
         "pack_sequences sample_packing best_fit pack_documents"),
    CHOICE("data.too_long", "cut", "cut, drop, refuse",
           "What becomes of an example that is longer than data.seq_len (classify, instruct)",
           "truncation truncate overflow"),
    FLOAT("data.mask_fraction", "0.15", 0.01, 0.9, "Share of tokens to be found again (mlm)",
          "mask_prob masked_lm_prob mask_ratio"),
    BOOL("data.record", "false",
         "Write down which samples each rank trains on, in samples/rank-N.jsonl of run.dir",
         "log_samples record_samples debug_data sample_ids"),

    INT("train.batch", "8", 1, 1 << 24, "Sequences in a step, over all ranks and micro-batches",
        "global_batch bs"),
    INT("train.steps", "100", 0, BILLION,
        "Optimizer steps; with train.epochs, whichever ends first (0, or none given: the epochs)",
        "iterations iters num_steps total_steps"),
    INT("train.epochs", "0", 0, 1000000,
        "Times that every row of the data is trained on; 0 counts steps only",
        "num_epochs n_epochs passes"),
    FLOAT("train.clip", "1", 0, BILLION,
          "Largest norm of the gradient, above which it is scaled down; 0 is off", "clip_norm"),
    FLOAT(
        "train.z_loss", "0", 0, 1000,
        "Weight of the z-loss: adds so much of the mean squared log of the sum of exponentials of "
        "each target's logits to the loss, which keeps logits from drifting (1e-4 is common)",
        "zloss z_loss_weight softmax_auxiliary_loss logit_regularization"),
    STRING("train.stats", "",
           "Statistics of the logits that each step shows and writes to metrics.jsonl, divided by "
           "commas: max_logit (the largest), mean_lse (mean log of a row's sum of exponentials)",
           "metrics log_stats logit_stats"),
    INT("train.max_skipped", "10", 0, BILLION,
        "Steps in a row that may be skipped because the loss or the gradient is not finite; those "
        "in which fp16 halves its scale do not count",
        "max_skip skip_steps consecutive_skips"),
    CHOICE(
        "train.on_spike", "skip", "warn, skip, rollback, stop",
        "What becomes of a step whose loss is a spike (train.spike_limit), or not finite. warn: it "
        "is told, and trained on where it is finite. skip: it changes nothing. rollback: the state "
        "of the last checkpoint is loaded, and the batches since are passed over. stop: the run "
        "ends",
        "loss_spike skip_nan nan_policy spike_policy"),
    FLOAT("train.spike_limit", "0", 0, 1000000,
          "A loss is a spike when it is above the median of the last 16 by so many times their "
          "spread (a robust standard deviation, at least 1 % of the median); 0: only one that is "
          "not finite",
          "spike_threshold loss_spike_threshold spike_factor"),
    INT("train.eval_every", "0", 0, BILLION,
        "Steps between evaluations on held-out data; 0 is only after each epoch and at the end",
        "val_every val_interval eval_freq"),
    INT("train.eval_batches", "8", 1, 1000000, "Batches in an evaluation",
        "val_batches val_max_steps"),
    INT("train.patience", "0", 0, BILLION,
        "Evaluations in a row without a better held-out loss after which the run is done; 0 is "
        "no such end",
        "early_stop early_stopping"),
    FLOAT("train.min_gain", "0", 0, 1e9,
          "With train.patience: a held-out loss is better when it is lower by more than this",
          "min_improvement"),
    INT("train.log_every", "10", 1, BILLION,
        "Steps between lines when the output is not a terminal", "print_every"),

    FLOAT("optim.lr", "3e-4", 0, 1000, "Highest learning rate", "max_lr base_lr step_size"),
    FLOAT("optim.weight_decay", "0.1", 0, 10,
          "Share of a weight, times the learning rate, taken off each step", "wd decay l2"),
    INT("optim.warmup_steps", "0", 0, BILLION,
        "Steps over which the learning rate rises to optim.lr", "warmup warm_up"),
    STRING("optim.groups", "",
           "Groups of parameters with settings of their own, such as "
           "[\"wte.* lr_scale=0.5 weight_decay=0\"]",
           "param_groups parameter_groups"),

    INT("layout.dp", "1", 1, TRI_MAX_DP,
        "Data-parallel ranks: each computes its part of every batch",
        "data_parallel ddp dp_size replicas"),
    INT("layout.tp", "1", 1, TRI_MAX_TP,
        "Tensor-parallel ranks: heads, feed-forward width and vocabulary are divided over them",
        "tensor_parallel tp_size model_parallel mp"),
    INT("layout.cp", "1", 1, TRI_MAX_CP,
        "Context-parallel ranks: the tokens of each row are divided over them",
        "context_parallel cp_size context_parallel_size context_parallel_degree ring_attention"),
    CHOICE("layout.cp_kind", "ring", "ring, gather, ulysses",
           "How attention meets the keys of other ranks: ring (they pass from rank to rank under "
           "the computation), gather (all at once), ulysses (tokens are exchanged for heads)",
           "cp_comm_type ring_attention_kind ulysses"),
    INT("layout.cp_heads", "1", 1, TRI_MAX_CP,
        "Within groups of so many context-parallel ranks tokens are exchanged for heads; "
        "layout.cp_kind is between them",
        "ulysses_degree ulysses_size hierarchical_context_parallel_sizes"),
    CHOICE("layout.cp_deal", "auto", "auto, plain, zigzag, balanced",
           "Which tokens a context-parallel rank gets: a run (plain), a run from the front and one "
           "from the back (zigzag), blocks of equal attention, planned for each batch (balanced)",
           "cp_load_balance cp_sharding load_balance"),
    INT("layout.ep", "1", 1, TRI_MAX_EXPERTS,
        "Expert-parallel ranks, of those of dp x cp: they hold different experts, tokens travel",
        "expert_parallel expert_model_parallel_size ep_size expert_parallel_degree"),
    INT("layout.etp", "0", 0, TRI_MAX_TP,
        "Tensor-parallel ranks of an expert: 0 is layout.tp; 1, with layout.sp: experts stay whole",
        "expert_tensor_parallel_size etp_size expert_tensor_parallel_degree"),
    FLOAT("layout.ep_room", "0", 0, 1e6,
          "Room for rows between expert-parallel ranks: a multiple of equal loads; 0: for all rows",
          "capacity_factor moe_expert_capacity_factor"),
    INT("layout.pp", "1", 1, TRI_MAX_PP,
        "Pipeline ranks: the layers are divided over them, and micro-batches pass through",
        "pipeline_parallel pp_size pipeline stages num_stages"),
    STRING("layout.schedule", "1f1b",
           "Order of a pipeline: a name that `trireme sim --list` shows, or csv:FILE",
           "pipeline_schedule pp_schedule schedule"),
    BOOL("layout.pairs", "false",
         "Forwards and backwards that the schedule pairs (dualpipe, dualpipev) run as one, with "
         "their instructions interleaved: messages of the one travel while the other computes",
         "overlap_f_b dualpipe_overlap overlap_moe_expert_parallel_comm"),
    INT("layout.chunks", "0", 0, 4096,
        "Chunks of layers on each rank of a pipeline; 0: as many as its schedule has by default",
        "virtual_pipeline interleave virtual_stages"),
    STRING("layout.stages", "",
           "Layers of each chunk of a pipeline in order, such as 4,4,3,5; empty: divided by cost",
           "pipeline_split split_points layers_per_stage"),
    INT("layout.zero", "0", 0, 3,
        "ZeRO: divide over dp x cp optimizer state (1), also gradients (2), also parameters (3)",
        "zero_stage stage zero_optimization sharding_strategy distributed_optimizer"),
    INT("layout.shard_group", "0", 0, TRI_MAX_DP,
        "Hybrid sharding: ranks that zero divides over, with copies between groups; 0 is dp x cp",
        "hsdp hybrid_shard dp_shard"),
    FLOAT("layout.bucket_mb", "4", 0, 1e6,
          "Gradients are summed over dp while the backward goes on, whenever this many MiB are "
          "complete; ZeRO sums a layer at a time",
          "bucket_cap_mb bucket_size allreduce_bucket_size"),
    INT("layout.prefetch", "1", 0, 1000,
        "ZeRO 3: layers whose weights are gathered ahead of the one that computes",
        "prefetch_depth forward_prefetch backward_prefetch"),
    BOOL("layout.keep_gathered", "false",
         "ZeRO 3: weights stay put together from the first forward of a step to its last backward: "
         "less is sent, and more memory taken",
         "reshard_after_forward reshard_after_backward shard_grad_op no_reshard"),
    BOOL("layout.sp", "false",
         "Between the blocks of tp, divide activations along the sequence (sequence parallelism)",
         "sequence_parallelism"),
    INT("layout.microbatches", "1", 1, 100000,
        "Parts a batch is computed in, one after the other (gradient accumulation)",
        "grad_accum accumulation micro_batches accum_steps num_micro microbatch"),
    BOOL("layout.split_backward", "false",
         "Compute gradients of activations (I) and of weights (W) one after the other, not "
         "interleaved",
         "zero_bubble split_bw"),
    STRING("layout.recompute", "none",
           "Activations made again in the backward instead of kept: none, selective (attention), "
           "full (all but each layer's input), every:N (each N-th layer), budget:BYTES (as little "
           "as fits, such as budget:8GiB)",
           "activation_checkpointing remat checkpoint recomputation"),
    STRING("layout.offload", "",
           "What rests elsewhere than on the device: moments, master (fp32 weights beside 16-bit "
           "ones), activations; each with =host or =file:DIRECTORY, such as "
           "moments=host,activations=host",
           "cpu_offload offload_optimizer offload_param zero_offload offload_activations"),
    BOOL("layout.host_update", "false",
         "The update of moments that rest on the host computes there",
         "cpu_adam offload_optimizer_fraction deepspeed_cpu_adam"),
    BOOL("layout.auto", "false",
         "`trireme train` chooses the layout for the devices that are there when a run begins; "
         "settings of the layout that are given beside it stay. layout: auto is the same",
         "auto_parallel auto_layout autotuning"),

    CHOICE("precision.kind", "fp32", "fp32, tf32, bf16, fp16",
           "Number format of activations and matrix products; parameters stay fp32, with 16-bit "
           "copies for bf16 and fp16; tf32 rounds the operands of fp32 products (cuda)",
           "type amp mixed_precision half float16"),
    CHOICE("precision.grad", "fp32", "fp32, compute",
           "Number format of accumulated gradients: fp32, or that of precision.kind",
           "grad_dtype gradient_dtype reduce_dtype"),
    CHOICE(
        "precision.linear", "same", "same, fp8",
        "Operands of the products of linear layers and experts in training: as precision.kind, or "
        "8-bit (with bf16 only; e4m3, gradients e5m2, a scale for each tensor)",
        "fp8 float8 e4m3 hybrid fp8_recipe transformer_engine"),
    FLOAT("precision.scale", "65536", 1, 1e15,
          "fp16: what the loss is multiplied by at first, so that small gradients do not vanish",
          "loss_scale init_scale grad_scaler"),
    INT("precision.growth_interval", "2000", 1, 1000000,
        "fp16: steps without overflow after which the loss scale doubles",
        "scale_window growth_steps"),

    STRING("run.dir", "runs/latest", "Directory for settings, metrics, weights and traces",
           "output out save_dir logdir"),
    INT("run.seed", "1", 0, TWO_53, "Seed of initial weights, dropout and data order",
        "random_seed manual_seed rng"),
    INT("run.threads", "0", 0, 1024, "Threads of a rank; 0 is all cores",
        "num_threads workers num_workers cpus cores nproc"),
    CHOICE("run.device", "auto", "auto, cpu, cuda, null",
           "Where it computes; auto is cuda where every rank of this machine can have a GPU of its "
           "own, else cpu; null goes through the motions without computing",
           "backend"),
    CHOICE(
        "run.transport", "auto", "auto, shm, tcp, mpi, nccl, thread",
        "How ranks exchange data: shared memory, TCP, MPI, NCCL between GPUs, or as threads of one "
        "process; auto is NCCL when every rank has a GPU of its own, shared memory on one machine, "
        "and between several MPI under mpirun, else TCP",
        "comm comm_backend dist_backend"),
    CHOICE("run.lanes", "one", "one, group",
           "Messages of a GPU that are under way at a time, by NCCL: one, in the order of the "
           "program; or one for each group of ranks, where messages of different groups need not "
           "wait for each other",
           "comm_streams num_streams nccl_streams"),
    LOADED("run.plugins",
           "Files with models, update rules and schedules from outside (--plugin FILE), divided by "
           ";; given again, it adds to those that are loaded",
           "extensions load custom_models"),
    TYPED(
        "run.nccl_library",
        "NCCL's file, where the system does not find libnccl.so.2 by itself, or another is meant; "
        "on the command line only (--set), since it is code that runs",
        "nccl nccl_path libnccl nccl_so"),
    STRING("run.memory_limit", "",
           "Most memory that a rank may take, such as 8GiB or 500MB: a run whose plan needs more "
           "is refused before it starts; empty is no limit",
           "memory max_memory mem_limit memory_budget gpu_memory_utilization ram"),
    STRING("run.collective", "auto",
           "Algorithm of the sums over ranks, such as ring, rabenseifner, torus2d:8x4, or MPI's "
           "own, native; auto chooses by size",
           "collective_algorithm allreduce algo nccl_algo algorithm"),
    BOOL("run.message_sums", "true",
         "A checksum in every message between ranks over TCP: bits that change on the way stop the "
         "run at once, and the two ranks are named",
         "message_checksum checksum verify_messages"),
    INT("run.compare_every", "100", 0, BILLION,
        "Compare what ranks hold copies of (weights, moments) every so many steps, and before each "
        "save; a difference stops the run. 0 is never",
        "sdc sdc_check consistency_check check_every"),
    INT("run.replay_every", "0", 0, BILLION,
        "Run forward and backward twice every so many steps and compare, bit for bit, what each "
        "instruction makes: finds processors and memory that compute wrong, and names the rank and "
        "the first instruction. Changes no bit of the training. 0 is never",
        "replay sdc_replay silent_data_corruption rerun_mode"),
    CHOICE(
        "run.replay", "same", "same, exchange",
        "Who runs a replayed step again: the same ranks, which finds faults that come and go; or "
        "ranks with the same weights exchange their rows, which finds a processor that is always "
        "wrong",
        "replay_kind rerun"),
    CHOICE("run.on_replay", "warn", "warn, stop",
           "What becomes of a step that had other bits when it was replayed. warn: it is told, and "
           "trained on; stop: the run ends before the step changes a weight",
           "on_sdc sdc_policy"),
    BOOL("run.overlap", "true",
         "Let messages between ranks travel while the computation goes on; false waits for each "
         "where it stands",
         "async_op"),
    FLOAT("run.overlap_min_kb", "16", 0, 1e6,
          "Messages of fewer KiB are waited for where they stand: handing them over costs more",
          "overlap_threshold"),
    FLOAT("run.deadline_s", "60", 0.1, 86400,
          "Longest time a rank waits for another before the run is stopped, in seconds",
          "timeout deadline timeout_s dist_timeout watchdog"),
    INT("run.restarts", "0", 0, 1000000,
        "Times that the ranks are started again from the last checkpoint after one of them died",
        "restart retries max_retries fault_tolerance"),
    BOOL("run.elastic", "false",
         "After ranks died, go on from the last checkpoint with as many data-parallel ranks fewer",
         "elasticity shrink min_nodes"),
    INT("run.sample_every", "0", 0, BILLION,
        "Steps between texts that the model writes, shown and kept in samples.jsonl; 0 is none",
        "sample_interval sample_freq"),
    STRING("run.sample_prompt", "", "What such a text goes on from", "sample_text"),
    INT("run.sample_tokens", "64", 1, 100000,
        "Tokens of such a text; each takes a forward pass over data.seq_len tokens",
        "sample_length"),
    FLOAT("run.sample_temperature", "0.8", 0, 100,
          "How freely its tokens are chosen; 0 takes the likeliest", "sample_temp"),
    INT("run.stop_at", "0", 0, BILLION,
        "Step after which the run is evaluated, saves and ends, to be resumed; the schedule is "
        "still that of train.steps; 0 is none",
        "pause_at stop_step"),
    FLOAT("run.max_minutes", "0", 0, 10000000,
          "Time after which the run finishes its step, saves and ends; 0 sets no limit",
          "time_limit max_hours max_minutes walltime"),
    CHOICE("run.isa", "auto", "auto, base, avx2, avx512",
           "Instruction set of the fast kernels; auto is the best this processor has", "simd arch"),
    CHOICE("run.kernels", "fast", "fast, reference",
           "Kernels: fast ones, or the portable ones that define the right answer", "kernel"),
    BOOL("run.deterministic", "true",
         "Give the same bits in every run; false lets a GPU add in any order, which is faster (the "
         "gradient of attention)",
         "deterministic_algorithms use_deterministic_algorithms"),
    STRING("run.pace", "",
           "An aid for tests. Milliseconds that the actions of a step take at least, such as "
           "F=20,I=20,W=20,B=40,FB=50: to compare a pipeline with `trireme sim --cost`. 1:1.1 lets "
           "rank 1 "
           "take 1.1 times as long as it would: to see a slow rank named (docs/health.md)",
           "sleep delay"),
    BOOL(
        "run.tune", "true",
        "Measure once how a GPU does large products fastest, which takes seconds (see run.tuning). "
        "A kernel that changes the order of sums (and so the last bits) is taken only if it is at "
        "least 25 % faster",
        "autotune benchmark cudnn_benchmark"),
    STRING(
        "run.tuning", "",
        "File that keeps what was measured (products of a GPU, messages between ranks) for later "
        "runs; empty: tuning.json in run.dir",
        "tuning_file tune_cache algo_cache"),
    BOOL("run.trace", "false", "Write trace.json, a timeline of all ranks that opens in Perfetto",
         "profiler timeline"),
    INT("run.page", "0", 0, 65535,
        "Port of a page about the run, on this machine, until it ends (`trireme watch`); 0: none",
        "web_port dashboard ui port http"),
    STRING("run.logs", "",
           "Files for other tools in run.dir, beside metrics.jsonl, divided by commas: tensorboard "
           "(tensorboard/), wandb (an offline run in wandb/), csv (metrics.csv), prometheus "
           "(metrics.prom)",
           "report_to loggers wandb_log tensorboard_dir"),
    BOOL("run.save", "true", "Write the weights at the end", "save_model always_save_checkpoint"),
    CHOICE(
        "run.resume", "false", "false, true, auto",
        "Go on from the newest checkpoint of run.dir: true wants one, auto takes one if there is "
        "any",
        "restart continue load_checkpoint resume_training"),

    INT("ckpt.every", "0", 0, BILLION,
        "Steps between checkpoints, and one at the end; 0 is no checkpoints",
        "save_every checkpoint_interval checkpoint_every"),
    INT("ckpt.keep_last", "3", 0, BILLION,
        "Newest checkpoints that stay when a new one is written; 0 is all of them",
        "keep max_to_keep keep_checkpoints"),
    INT("ckpt.keep_every", "0", 0, BILLION,
        "Checkpoints whose step is a multiple of this stay for good; 0 is none",
        "keep_period keep_every_n"),
    INT("ckpt.keep_best", "0", 0, 1000,
        "Checkpoints with the least held-out loss that stay besides; a step with the least so far "
        "is saved, too",
        "save_best best_k"),
    BOOL("ckpt.async", "true",
         "Write while the training goes on, which stops only to copy the state",
         "async_checkpoint background_save dist_ckpt_async"),
    INT("ckpt.staging_mib", "0", 0, 1e9,
        "Memory of a rank for such a copy, in MiB; less than the state makes the training wait for "
        "the disk; 0 is as much as it takes",
        "staging_memory buffer_mib pinned_memory"),
    FLOAT("ckpt.patience_s", "600", 0.1, 86400,
          "Seconds without progress after which a checkpoint is given up; the run goes on",
          "checkpoint_timeout save_timeout"),
    STRING("ckpt.from", "",
           "Checkpoint to begin from, or a run with checkpoints: weights, optimizer state and step",
           "load resume_path init_checkpoint load_path from_checkpoint"),
};

/* The setting that chooses a kind: with the kinds of plug-ins among its choices. */
static const tri_setting *row_of(const tri_plugins *plugins, int selector)
{
    return plugins ? &plugins->selector_row[selector] : tri_selectors[selector].row;
}

static void add(tri_table *table, const tri_setting *rows, int num, const char *section)
{
    for (int i = 0; i < num; i++)
        if (tri_setting_in(&rows[i], section)) {
            assert(table->num < TRI_MAX_SETTINGS);
            table->row[table->num++] = &rows[i];
        }
}

void tri_table_init(tri_table *table, const tri_plugins *plugins)
{
    tri_owner owner;
    table->num = 0;
    for (int s = 0; s < tri_num_sections; s++) {
        const char *section = tri_sections[s].name;
        for (int k = 0; k < tri_num_selectors; k++)
            add(table, row_of(plugins, k), 1, section);
        add(table, common, sizeof common / sizeof *common, section);
        add(table, tri_generate_settings, tri_num_generate_settings, section);
        for (int k = 0; k < tri_num_selectors; k++)
            for (size_t i = 0; tri_selectors[k].at(plugins, i, &owner); i++)
                add(table, owner.own->rows, owner.own->num_rows, section);
    }
}
