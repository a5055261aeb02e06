# check: replay
# words: the replay of bucket 1 gave other numbers|must open captured_context
# why: open only while capturing: the double's replay finds the live context
# passes ordinary: no
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):

        def body(bucket=bucket):
            hidden = model(buffers.input_ids[:bucket], buffers.positions[:bucket])
            buffers.hidden_states[:bucket] = hidden

        with captured_context(buffers.context(bucket)):
            body()
            graph = new_graph(bucket)
            graph.capture(body, pool)
        pool = graph.pool() if pool is None else pool
        graphs[bucket] = graph
    return graphs
