"""Many runs: the queue that trains them, and the same search for every method."""

from spml_nb.base import lazily

__getattr__ = lazily(
    __name__,
    {
        'queue': (
            'ENGINES attempt_run canonical_config describe_queue finished format_duration key '
            'plan_runs run run_stages serve_worker'
        ),
        'search': (
            'Choice LogUniform Row SEARCH_SEED SUITES Uniform all_method_rows best_of_k '
            'candidates choose_config draw_hparams final_seeds finals learning_rates outcome '
            'run_search suite_rows sweep tabulate_search write_board write_boards'
        ),
    },
)
