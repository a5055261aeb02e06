# check: replay
# words: gave other numbers|on its own bucket's context
# why: rows are bound, the context is not: at a replay it is the last bucket's
# passes ordinary: no
from nanoengine.context import captured_context


def capture_all(model, buffers, buckets, new_graph):
    graphs, pool = {}, None
    for bucket in sorted(buckets, reverse=True):
        context = buffers.context(bucket)
        ids, positions = buffers.input_ids[:bucket], buffers.positions[:bucket]
        out = buffers.hidden_states[:bucket]

        def body(ids=ids, positions=positions, out=out):
            with captured_context(context):
                out[:] = model(ids, positions)

        body()
        graphs[bucket] = new_graph(bucket)
        graphs[bucket].capture(body, pool)
        pool = graphs[bucket].pool() if pool is None else pool
    return graphs
