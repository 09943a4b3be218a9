/* Trireme inside another program: trains the tiny model and writes a little text.
 * Build: cc embed.c $(pkg-config --cflags --libs trireme) */
#include <ctype.h>
#include <stdio.h>

#include <trireme/trireme.h>

/* Made-up tokens are any bytes: show those that can be seen. */
static void print_text(void *context, const char *bytes, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++)
        fputc(isprint((unsigned char)bytes[i]) ? bytes[i] : '.', context);
}

static int fail(const tr_error *err)
{
    fprintf(stderr, "embed: %s\n", err->message);
    return 1;
}

int main(int argc, char **argv)
{
    static const char *const choices[] = {
        "model.num_layers=4", "model.dim=64",       "model.num_heads=4", "model.vocab=256",
        "model.dropout=0.1",  "data.seq_len=64",    "train.batch=8",     "train.steps=20",
        "optim.lr=3e-3",      "generate.tokens=40", "generate.prompt=",
    };
    tr_error err = {0};
    tr_settings *settings;
    if (tr_settings_create(&settings, &err) != TR_OK)
        return fail(&err);
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (tr_settings_set(settings, choices[i], &err) != TR_OK)
            return fail(&err);
    for (int i = 1; i < argc; i++) /* more from the command line: section.key=value */
        if (tr_settings_set(settings, argv[i], &err) != TR_OK)
            return fail(&err);

    tr_session *session;
    if (tr_session_create(settings, &session, &err) != TR_OK)
        return fail(&err);
    printf("%zu tensors of parameters, %.1f MiB planned\n", tr_session_num_params(session),
           (double)tr_session_planned_bytes(session) / 1048576.0);

    double first = 0, last = 0;
    for (int64_t i = 0; i < tr_settings_int(settings, "train.steps"); i++) {
        tr_step step;
        if (tr_session_step(session, &step, &err) != TR_OK)
            return fail(&err);
        first = i == 0 ? step.loss : first;
        last = step.loss;
    }
    printf("loss %.4f -> %.4f\n", first, last);
    if (tr_session_generate(session, "", print_text, stdout, &err) != TR_OK)
        return fail(&err);
    printf("\n");
    tr_session_destroy(session);
    tr_settings_destroy(settings);
    return last < first - 0.5 ? 0 : 1;
}
