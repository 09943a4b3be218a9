/* The settings of llama, and what is made of them. */
#include "model/llama.h"

const tri_setting tri_llama_rows[] = {
    TRI_FLOAT_ROW(
        "model.norm_eps", "1e-5", 0, 1,
        "Added to the variance in norms (llama, bert; a bert takes 1e-12 when none is given)",
        "layer_norm_eps layernorm_epsilon eps"),
    TRI_BOOL_ROW("model.tied_head", "false",
                 "The head shares the token table (llama; gpt2 always does)",
                 "tie_embeddings weight_tying"),
    TRI_BOOL_ROW("model.qkv_bias", "false", "Biases on query, key and value (llama; as in Qwen 2)",
                 "use_qkv_bias"),
    TRI_BOOL_ROW("model.qk_norm", "false", "Norms on each query and key (llama; as in Qwen 3)",
                 "use_qk_norm"),
    TRI_BOOL_ROW("model.qk_norm_wide", "false",
                 "These norms are over all heads together (llama; as in OLMoE)", NULL),
    TRI_INT_ROW(
        "model.window", "0", 0, TRI_BILLION,
        "Positions that attention looks back, itself included (llama; as in Mistral); 0 is all",
        "local_attention"),
    TRI_FLOAT_ROW("model.rope_theta", "10000", 1, 1e12, "Base of the rotary frequencies (llama)",
                  "rope_base rotary_emb_base theta"),
    TRI_FLOAT_ROW("model.rope_part", "1", 0, 1, "Part of each head that turns (llama)",
                  "partial_rotary_factor rotary_pct rotary_percent"),
    TRI_FLOAT_ROW("model.rope_factor", "0", 0, 1000,
                  "How much longer than before texts may be: stretches rotary frequencies, as "
                  "model.rope_scaling says; 0 is off",
                  "rope_scaling_factor"),
    TRI_CHOICE_ROW(
        "model.rope_scaling", "llama3", "llama3, linear, dynamic, yarn, longrope",
        "How model.rope_factor stretches: llama3 low frequencies; linear all; dynamic the "
        "base, by the length of texts; yarn along a ramp; longrope by two lists",
        "rope_type"),
    TRI_INT_ROW("model.rope_original", "8192", 1, TRI_BILLION,
                "Positions before the stretching (original_max_position_embeddings)",
                "original_max_position_embeddings"),
    TRI_FLOAT_ROW("model.rope_low", "1", 0, 1000, "Llama 3.1's low_freq_factor", "low_freq_factor"),
    TRI_FLOAT_ROW("model.rope_high", "4", 0, 1000, "Llama 3.1's high_freq_factor",
                  "high_freq_factor"),
    TRI_FLOAT_ROW("model.rope_slow", "1", 0, 1000, "YaRN's beta_slow", "beta_slow"),
    TRI_FLOAT_ROW("model.rope_fast", "32", 0, 1000, "YaRN's beta_fast", "beta_fast"),
    TRI_BOOL_ROW("model.rope_truncate", "true", "YaRN's ramp begins and ends at whole pairs",
                 "truncate"),
    TRI_FLOAT_ROW("model.rope_magnitude", "0", 0, 1000,
                  "What yarn and longrope scale turned queries and keys by (attention_factor); 0: "
                  "what their authors say",
                  "attention_factor"),
    TRI_STRING_ROW("model.rope_short", "",
                   "Longrope: what divides the frequency of each pair, with commas between, for "
                   "texts of up to model.rope_original",
                   "short_factor"),
    TRI_STRING_ROW("model.rope_long", "", "Longrope: the same for longer texts", "long_factor"),
    TRI_INT_ROW("model.num_experts", "0", 0, TRI_MAX_EXPERTS,
                "Experts of a layer, of which a router chooses some for each token; 0: one "
                "feed-forward for all (llama; as in Mixtral)",
                "num_local_experts n_routed_experts moe_num_experts"),
    TRI_INT_ROW("model.experts_per_token", "2", 1, TRI_MAX_CHOICES,
                "Experts that each token goes to (top-k)",
                "num_experts_per_tok moe_top_k top_k moe_router_topk"),
    TRI_INT_ROW("model.expert_dim", "0", 0, TRI_BILLION,
                "Feed-forward width of an expert; 0: model.ffn_dim",
                "moe_intermediate_size moe_ffn_hidden_size"),
    TRI_STRING_ROW("model.expert_layers", "",
                   "Layers that have experts, from 0 on, such as 1..23 or 1,3,5; empty: all",
                   "first_k_dense_replace mlp_only_layers decoder_sparse_step moe_layer_freq"),
    TRI_INT_ROW("model.shared_dim", "0", 0, TRI_BILLION,
                "Feed-forward width of an expert that every token goes to; 0: there is none",
                "shared_expert_intermediate_size n_shared_experts num_shared_experts"),
    TRI_BOOL_ROW("model.shared_gate", "false",
                 "The shared expert is multiplied by a gate (as in Qwen 2)", "shared_expert_gate"),
    TRI_CHOICE_ROW(
        "model.router_score", "softmax", "softmax, sigmoid, chosen",
        "What experts are chosen and weighted by: softmax over all; the sigmoid of each; "
        "the logits, with softmax over the chosen ones alone",
        "scoring_func moe_router_score_function"),
    TRI_BOOL_ROW("model.router_renorm", "true",
                 "Weights of the chosen experts are divided by their sum", "norm_topk_prob"),
    TRI_INT_ROW("model.router_groups", "1", 1, TRI_MAX_EXPERTS,
                "Experts are in so many groups (as in DeepSeek)", "n_group moe_router_num_groups"),
    TRI_INT_ROW("model.router_group_limit", "1", 1, TRI_MAX_EXPERTS,
                "Groups that a token chooses from, with model.router_groups",
                "topk_group moe_router_group_topk"),
    TRI_FLOAT_ROW("model.router_scale", "1", 0, 1000, "Factor of the weights of experts",
                  "routed_scaling_factor moe_router_topk_scaling_factor"),
    TRI_FLOAT_ROW("model.router_jitter", "0", 0, 0.5,
                  "Training multiplies each element of a router's input by a random number that is "
                  "at most so far from 1 (as in Switch); 0: none",
                  "moe_input_jitter_eps router_jitter_noise jitter_eps"),
    TRI_FLOAT_ROW("model.expert_capacity", "0", 0, 1000,
                  "Training drops rows of a sequence beyond so many times the mean load of an "
                  "expert (as in Switch and GShard); 0: none",
                  "moe_expert_capacity_factor capacity_factor expert_capacity_factor"),
    TRI_FLOAT_ROW("model.router_bias", "0", 0, 1,
                  "Balance without a loss (as in DeepSeek): what the bias of an expert's selection "
                  "moves by in each step, down where its load is above the mean; 0: no bias",
                  "bias_update_speed moe_router_bias_update_rate aux_loss_free"),
    TRI_FLOAT_ROW("model.balance_loss", "0.01", 0, 1000,
                  "Weight of the loss that keeps loads of experts equal, summed over layers",
                  "router_aux_loss_coef moe_aux_loss_coeff aux_loss_alpha"),
    TRI_CHOICE_ROW("model.balance_over", "sequence", "sequence, microbatch, joint",
                   "Where loads are to be equal: in each row of the batch; in each micro-batch, "
                   "over all ranks that share it; in all layers together (as Hugging Face has it)",
                   "moe_router_load_balancing_type seq_aux"),
    TRI_FLOAT_ROW("model.router_z_loss", "0", 0, 1000,
                  "Weight of the squared log of the sum of exponentials of a router's logits",
                  "router_z_loss_coef moe_z_loss_coeff"),
};

static tri_rope_setting read_rope(const tr_settings *s)
{
    static const tri_rope_kind kinds[] = {TRI_ROPE_AS_LLAMA3, TRI_ROPE_AS_LINEAR,
                                          TRI_ROPE_AS_DYNAMIC, TRI_ROPE_AS_YARN,
                                          TRI_ROPE_AS_LONGROPE};
    return (tri_rope_setting){.kind = kinds[tr_settings_choice(s, "model.rope_scaling")],
                              .theta = tr_settings_float(s, "model.rope_theta"),
                              .factor = tr_settings_float(s, "model.rope_factor"),
                              .low = tr_settings_float(s, "model.rope_low"),
                              .high = tr_settings_float(s, "model.rope_high"),
                              .slow = tr_settings_float(s, "model.rope_slow"),
                              .fast = tr_settings_float(s, "model.rope_fast"),
                              .truncate = tr_settings_bool(s, "model.rope_truncate"),
                              .original = tr_settings_int(s, "model.rope_original"),
                              .magnitude = tr_settings_float(s, "model.rope_magnitude"),
                              .part = tr_settings_float(s, "model.rope_part"),
                              .short_list = tr_settings_string(s, "model.rope_short"),
                              .long_list = tr_settings_string(s, "model.rope_long")};
}

static tri_moe_config read_experts(const tr_settings *s, int64_t ffn_dim)
{
    static const tri_route_score scores[] = {TRI_ROUTE_SOFTMAX, TRI_ROUTE_SIGMOID,
                                             TRI_ROUTE_CHOSEN};
    static const tri_balance_over over[] = {TRI_BALANCE_SEQUENCE, TRI_BALANCE_MICROBATCH,
                                            TRI_BALANCE_JOINT};
    int64_t expert_dim = tr_settings_int(s, "model.expert_dim");
    return (tri_moe_config){
        .num_experts = tr_settings_int(s, "model.num_experts"),
        .choices = tr_settings_int(s, "model.experts_per_token"),
        .expert_dim = expert_dim > 0 ? expert_dim : ffn_dim,
        .shared_dim = tr_settings_int(s, "model.shared_dim"),
        .layers = tr_settings_string(s, "model.expert_layers"),
        .shared_gate = tr_settings_bool(s, "model.shared_gate"),
        .score = scores[tr_settings_choice(s, "model.router_score")],
        .renorm = tr_settings_bool(s, "model.router_renorm"),
        .groups = tr_settings_int(s, "model.router_groups"),
        .group_limit = tr_settings_int(s, "model.router_group_limit"),
        .scale = (float)tr_settings_float(s, "model.router_scale"),
        .bias_rate = (float)tr_settings_float(s, "model.router_bias"),
        .capacity = (float)tr_settings_float(s, "model.expert_capacity"),
        .jitter = (float)tr_settings_float(s, "model.router_jitter"),
        .balance = (float)tr_settings_float(s, "model.balance_loss"),
        .over = over[tr_settings_choice(s, "model.balance_over")],
        .z = (float)tr_settings_float(s, "model.router_z_loss"),
    };
}

void tri_llama_read(const tr_settings *s, tri_model_config *m)
{
    m->norm_eps = (float)tr_settings_float(s, "model.norm_eps");
    m->tied_head = tr_settings_bool(s, "model.tied_head");
    m->qkv_bias = tr_settings_bool(s, "model.qkv_bias");
    m->qk_norm = tr_settings_bool(s, "model.qk_norm");
    m->qk_norm_wide = tr_settings_bool(s, "model.qk_norm_wide");
    m->window = tr_settings_int(s, "model.window");
    m->rope = read_rope(s);
    m->moe = read_experts(s, m->ffn_dim);
}

_Static_assert(sizeof tri_llama_rows / sizeof *tri_llama_rows == TRI_NUM_LLAMA_ROWS,
               "llama.h says how many there are");
