"""The guided tour is true: its code runs and prints what it shows, in both languages, and no concept is left out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from latex2mathml.converter import convert

from heed.catalogue import entries
from tools import tour

MARKS = {"en": ("Not yet in heed:", "Partly in heed:"), "zh": ("heed 尚未提供：", "heed 部分提供：")}  # what is missing
INDEX = {"en": ("Not yet: ", "Partly: "), "zh": ("尚未提供：", "部分提供：")}
SECTION = re.compile(r"^((?:<a id=\"[\w-]+\"></a>)+)\n\n## (.+?)\n(.*?)(?=^<a id=|^---$)", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r"^\$\$\n(.*?)^\$\$$", re.MULTILINE | re.DOTALL)

# What the tour must explain: chapter by chapter its anchors, each with the usual name in English | Chinese.
CONCEPTS = """
01-pooling
query-key-value = Query | 查询
average-pooling = average pooling | 平均汇聚
max-pooling = max pooling | 最大汇聚
nadaraya-watson = Nadaraya–Watson | Nadaraya–Watson
learned-width = learned width | 可学习宽度
02-scores
additive = additive | 加性
dot = dot product | 点积
scaled-dot = scaled dot product | 缩放点积
general = bilinear | 通用评分
content-based = cosine | 余弦
location-based = location | 基于位置
masked-softmax = masked softmax | 掩蔽 softmax
heat-map = heat map | 热图
sqrt-d = variance | 方差
03-self-attention
recommender = recommender | 推荐系统
plain-self-attention = plainest self-attention | 最朴素的自注意力
permutation-equivariance = permutation equivariance | 置换等变性
rnn-cnn-attention = RNN, CNN and self-attention | RNN、CNN 与自注意力
parallel-steps = sequential steps | 顺序步骤
path-length = path | 路径
04-sequences
tokenizers = tokenizer | 分词器
patches = patches | 图块
log-mel = log-mel | 对数梅尔
05-transformer
step-by-step = step by step | 每一步
multi-head = multi-head attention | 多头注意力
nn-multiheadattention = nn.MultiheadAttention | nn.MultiheadAttention
padding-mask = padding mask | 填充掩码
sequence-mask = sequence mask | 序列掩码
encoder = encoder | 编码器
cross-attention = cross-attention | 交叉注意力
context-attention = context attention | 上下文注意力
decoder = decoder | 解码器
tensor-shapes = tensor shapes | 张量形状
06-positions
embedding-scale = embeddings times √d | 嵌入乘以 √d
unit-position = [0, 1] | [0, 1]
integer-position = integer | 整数
binary-position = binary | 二进制
sinusoid = sinusoid | 正弦
learned-position = learned positions | 可学习的位置编码
segment-embedding = segment embedding | 分段嵌入
shaw = Shaw | Shaw
transformer-xl-position = Transformer-XL | Transformer-XL
t5-buckets = buckets | 分桶
rope = RoPE | RoPE
xpos = xPos | xPos
alibi = ALiBi | ALiBi
07-residuals-norms
residual-connections = residual connections | 残差连接
layer-norm = layer norm | 层归一化
batch-norm = batch norm | 批归一化
pre-norm = pre-norm | 前置归一化
post-norm = post-norm | 后置归一化
gradients-by-depth = gradients by depth | 各层的梯度
residual-wiring = ResiDual | ResiDual
deepnorm = DeepNorm | DeepNorm
feed-forward = feed-forward | 前馈网络
1x1-convolutions = 1×1 convolutions | 1×1 卷积
08-translation
training-a-translator = training a translator | 翻译模型
beam-search = beam search | 束搜索
it-resolution = which head resolves it | 哪个头解决指代
09-tasks
binary-classification = two classes | 二分类
multi-class = many classes | 多分类
multi-label = several labels | 多标签
matching = matching | 匹配
tagging = tagging | 序列标注
generation = generation | 生成
summarisation = summarisation | 摘要
translation = translation | 翻译
rewriting = rewriting | 改写
question-answering = question answering | 问答
masked-language-model = MLM | 掩码语言模型
next-sentence-prediction = NSP | 下一句预测
permutation-language-model = permutation language model | 排列语言模型
denoising = denoising | 去噪
pre-train-fine-tune = fine-tune | 微调
word2vec = word2vec | word2vec
10-language-models
bert = BERT | BERT
gpt-2 = 117, 345, 762 and 1542 | 117M、345M、762M、1542M
top-k = top-k | top-k
starting-token = starting token | 起始词元
t5 = T5 | T5
albert = ALBERT | ALBERT
roberta = RoBERTa | RoBERTa
roformer = RoFormer | 分词
xlnet = XLNet | XLNet
two-streams = two streams | 双流
elmo = ELMo | ELMo
transformer-xl = Transformer-XL | Transformer-XL
character-transformer = character Transformer | 字符级 Transformer
al-rfou = Al-Rfou | Al-Rfou
transformer-decoder = Transformer-Decoder | Transformer-Decoder
11-images-sound
vit = ViT | ViT
clip = CLIP | CLIP
whisper = Whisper | Whisper
xls-r = XLS-R | XLS-R
layoutlm = LayoutLM | LayoutLM
boxes = box | 文字框
kosmos-1 = KOSMOS-1 | KOSMOS-1
stable-diffusion = Stable Diffusion | Stable Diffusion
training-images-sound = training on images | 在图像与声音上训练
12-decoding
kv-cache = KV cache | 键值缓存
mqa = MQA | 多查询注意力
gqa = GQA | 分组查询注意力
flashattention = FlashAttention | FlashAttention
pagedattention = PagedAttention | 分页注意力
continuous-batching = continuous batching | 连续批处理
fastertransformer = FasterTransformer | FasterTransformer
inference-chips = inference chips | 推理芯片
speculative-decoding = speculative decoding | 投机解码
mcts = MCTS | 蒙特卡洛树搜索
export = export | 导出
13-sparse
atrous = atrous | 空洞注意力
local-attention = local attention | 局部注意力
sparse-attention = sparse attention | 稀疏注意力
longformer = Longformer | Longformer
roberta-to-longformer = RoBERTa to Longformer | 从 RoBERTa 到 Longformer
bigbird = BigBird | BigBird
who-sees-whom = who does a given token see | 某个词元能看到谁
longnet = LongNet | LongNet
reformer = Reformer | Reformer
linformer = Linformer | Linformer
performer = Performer | Performer
clustered = clustered attention | 聚类注意力
block-patterns = block patterns | 块模式
14-memory
transformer-xl-memory = Transformer-XL | Transformer-XL
infini-attention = Infini-attention | Infini-attention
recurrent-memory = recurrent memory | 循环记忆
unlimiformer = Unlimiformer | Unlimiformer
15-beyond-softmax
retnet = RetNet | RetNet
three-forms = three forms | 三种形式
parallel-form = parallel | 并行
recurrent-form = recurrent | 循环
chunkwise-form = chunkwise | 分块
rwkv = RWKV | RWKV
yoco = YOCO | YOCO
s4 = S4 | S4
flash = FLASH | FLASH
impossible-triangle = impossible triangle | 不可能三角
16-compression
bitnet = BitNet b1.58 | BitNet b1.58
lite-transformer = Lite Transformer | Lite Transformer
moe = mixture of experts | 混合专家
crate = CRATE | CRATE
coding-rate = coding rate | 编码率
17-retrieval
retro-database = database | 数据库
frozen-keys = frozen keys | 冻结的键
two-neighbours = two neighbours | 两个近邻
chunked-cross-attention = chunked cross-attention | 分块交叉注意力
webgpt = WebGPT | WebGPT
18-convolutions-recurrence
dilated-convolution = dilated convolution | 空洞卷积
grouped-convolution = grouped | 分组卷积
depthwise-convolution = depthwise | 深度卷积
separable-convolution = separable | 可分离卷积
2d-convolution = 2-D | 二维
3d-convolution = 3-D | 三维
transposed-convolution = transposed | 转置卷积
flattened-convolution = flattened | 扁平化卷积
shuffled-convolution = shuffled | 通道混洗
involution = involution | 内卷
rnn = RNN | 循环神经网络
lstm = LSTM | LSTM
gru = GRU | GRU
qrnn = QRNN | QRNN
"""


class Concept(NamedTuple):
    """One line of the table."""

    chapter: str
    anchor: str
    names: dict[str, str]


class Section(NamedTuple):
    """A part of a chapter."""

    anchors: list[str]
    heading: str
    text: str


def concepts() -> list[Concept]:
    found, chapter = [], ""
    for line in CONCEPTS.strip().splitlines():
        anchor, given, names = line.partition(" = ")
        if not given:
            chapter = f"{line}.md"
            continue
        english, _, chinese = names.partition(" | ")
        found.append(Concept(chapter, anchor, {"en": english, "zh": chinese}))
    return found


def sections(page: Path) -> list[Section]:
    return [
        Section(re.findall(r'id="([\w-]+)"', anchors), heading, text)
        for anchors, heading, text in SECTION.findall(page.read_text(encoding="utf-8"))
    ]


def links(page: Path) -> list[tuple[str, str]]:
    """Files and anchors that a page links to, within the tour."""
    return re.findall(r"\]\(([\w.-]*\.md)?#([\w-]+)\)", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", tour.chapters())
def test_a_chapter_prints_what_it_shows(name: str) -> None:
    """In order, in one namespace. If a change is meant, `python -m tools.tour` writes the outputs anew."""
    steps = tour.steps(tour.FOLDER / name)
    for number, output in enumerate(tour.printed(name, [step.code for step in steps])):
        assert output == steps[number].shown, f"{name}, block {number}"


@pytest.mark.parametrize("name", tour.chapters())
def test_both_languages_run_and_show_the_same(name: str) -> None:
    assert tour.steps(tour.LANGUAGES["zh"] / name) == tour.steps(tour.FOLDER / name)


@pytest.mark.parametrize("name", tour.chapters())
def test_both_languages_have_the_same_sections_with_text_and_the_same_marks(name: str) -> None:
    english, chinese = (sections(folder / name) for folder in tour.LANGUAGES.values())
    assert english
    assert [section.anchors for section in english] == [section.anchors for section in chinese]
    for one, other in zip(english, chinese, strict=True):
        assert [mark in one.text for mark in MARKS["en"]] == [mark in other.text for mark in MARKS["zh"]], one.heading
        assert FORMULA.findall(one.text) == FORMULA.findall(other.text)
        assert re.search(r"[\u4e00-\u9fff]{6}", other.text), f"{name}, {other.heading}: no Chinese text"


@pytest.mark.parametrize("name", tour.chapters())
def test_formulas_can_be_drawn(name: str) -> None:
    """What the site does not know would stay as a command of LaTeX."""
    for formula in FORMULA.findall((tour.FOLDER / name).read_text(encoding="utf-8")):
        assert not re.findall(r"\\[a-zA-Z]+", convert(formula, display="block")), formula


def test_chapters_are_the_same_in_both_languages() -> None:
    assert len(tour.chapters()) > 11
    assert tour.chapters() == sorted(path.name for path in tour.LANGUAGES["zh"].glob("[0-9]*.md"))


@pytest.mark.parametrize("language", tour.LANGUAGES)
@pytest.mark.parametrize("concept", concepts(), ids=lambda concept: f"{concept.chapter[:2]}-{concept.anchor}")
def test_a_concept_is_found_by_its_usual_name(concept: Concept, language: str) -> None:
    found = [
        section for section in sections(tour.LANGUAGES[language] / concept.chapter) if concept.anchor in section.anchors
    ]
    assert len(found) == 1
    text = f"{found[0].heading}\n{found[0].text}".lower()
    assert concept.names[language].lower() in text


@pytest.mark.parametrize("language", tour.LANGUAGES)
def test_the_index_names_every_section_and_all_that_is_missing(language: str) -> None:
    folder = tour.LANGUAGES[language]
    index = (folder / "README.md").read_text(encoding="utf-8")
    for name in tour.chapters():
        assert f"({name})" in index
        for section in sections(folder / name):
            assert any(f"({name}#{anchor})" in index for anchor in section.anchors), (name, section.heading)
    told = set(re.findall(r"^- (\S.*?)\[[^\]]+\]\(([^)]+)\)", index, re.MULTILINE))
    marked = {
        (label, f"{name}#{section.anchors[0]}")
        for name in tour.chapters()
        for section in sections(folder / name)
        for mark, label in zip(MARKS[language], INDEX[language], strict=True)
        if mark in section.text
    }
    assert told == marked


@pytest.mark.parametrize("language", tour.LANGUAGES)
def test_what_heed_list_is_asked_for_is_in_the_catalogue(language: str) -> None:
    known = {entry.name for entry in entries()}
    for page in tour.LANGUAGES[language].glob("*.md"):
        asked = re.findall(r"`heed list ([\w-]+)`", page.read_text(encoding="utf-8"))
        assert set(asked) <= known, f"{page.name}: {set(asked) - known}"


@pytest.mark.parametrize("language", tour.LANGUAGES)
def test_links_lead_to_anchors(language: str) -> None:
    folder = tour.LANGUAGES[language]
    for page in folder.glob("*.md"):
        for file, anchor in links(page):
            target = (folder / file if file else page).read_text(encoding="utf-8")
            assert f'<a id="{anchor}"></a>' in target, f"{page.name} links to {file}#{anchor}"


@pytest.mark.parametrize("language", tour.LANGUAGES)
@pytest.mark.parametrize("name", tour.chapters())
def test_a_chapter_links_to_its_neighbours_and_to_the_other_language(name: str, language: str) -> None:
    text = (tour.LANGUAGES[language] / name).read_text(encoding="utf-8")
    place = tour.chapters().index(name)
    beside = tour.chapters()[max(0, place - 1) : place + 2]
    assert all(f"]({other})" in text for other in beside if other != name)
    assert f"](zh/{name})" in text if language == "en" else f"](../{name})" in text


def test_outputs_are_written_below_their_blocks() -> None:
    page = "a\n\n```python\nprint(1)\n```\n\n```text\nold\n```\n\nb\n\n```python\nx = 1\n```\n"
    assert tour.rewritten(page, ["1\n", ""]) == page.replace("old", "1")
    assert list(tour.printed("a page", ["print('1 ')", "x = 1"])) == ["1\n", ""]
